"""Evaluate trained networks at scan groups and decode modes. See `--help`."""

from pcr_exp.cli.evaluate import main

if __name__ == "__main__":
    main()
