"""Evaluate trained networks at scan groups and decode modes. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("evaluate")
