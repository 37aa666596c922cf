"""Encode a dataset's JPEG files as records. See `--help`."""

from pcr_exp.cli.prepare import main

if __name__ == "__main__":
    main()
