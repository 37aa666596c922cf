"""The reproduction of four papers, in a checkout: `python -m experiments.train` and the other commands.

A folder per paper (`pcr`, `echoing`, `threelc`, `comet`, `combined`), `loaders` for ours beside those of
others, `claims` for what the papers say, `gpu` for what only a GPU can show, `results` for the folders of
results/. All import `pcr_exp`, which imports none of them.
"""
