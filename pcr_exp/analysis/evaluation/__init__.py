"""What trained networks lose at scan groups: `experiments.evaluate` measures, here are its table and figures.

They are drawn from the file of scores alone, a row per network, level and image.
"""
