"""The whole slice on the embedded photographs: `make demo`. See `--help`."""

from pcr_exp.runners.demo import main

if __name__ == "__main__":
    main()
