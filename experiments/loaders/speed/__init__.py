"""How fast one step is by itself: each file is a program, `python -m experiments.loaders.speed.<name>`.

They measure native ImageNet images (`--images`), print a table, and keep its rows as a CSV that a page in
results/ shows.
"""
