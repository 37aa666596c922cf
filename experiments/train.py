"""Train one model at one scan level; `-m` sweeps. See `--help`."""

from pcr_exp.cli.train import main

if __name__ == "__main__":
    main()
