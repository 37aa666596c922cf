"""Ask which scan group a task tolerates, before any training. See `--help`."""

from pcr_exp.cli.tolerance import main

if __name__ == "__main__":
    main()
