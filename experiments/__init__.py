"""Reproduction of four papers, run from a checkout: `python -m experiments.train` and the other commands.

Each paper has a folder (`pcr`, `echoing`, `threelc`, `comet`); `combined` combines their methods. `loaders`
compares our loader with others, `claims` judges the papers' claims, `gpu` measures what needs a GPU, and
`results` has code for the folders of results/. All import `pcr_exp`, which imports none of them.
"""
