"""Measure what only a GPU can show, in three parts of minutes each. See `--help`."""

from pcr_exp.runners.gpu import main

if __name__ == "__main__":
    main()
