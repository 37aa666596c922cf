"""Estimate which scan group a task tolerates, before any training. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("tolerance")
