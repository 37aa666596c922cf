"""Train one model at one scan level; `-m` sweeps. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("train")
