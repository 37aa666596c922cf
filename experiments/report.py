"""Hold what the papers claim against the committed results. See `--help`."""

from pcr_exp.runners.report import main

if __name__ == "__main__":
    main()
