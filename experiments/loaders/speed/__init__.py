"""Speed of single steps: each file but `pages` is a program, `python -m experiments.loaders.speed.<name>`.

Most measure on native ImageNet images (`--images`). They print a table, and save its rows as a CSV that a
page in results/ shows.
"""
