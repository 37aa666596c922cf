"""Encode a dataset's JPEG files as records. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("prepare")
