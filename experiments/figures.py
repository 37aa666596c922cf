"""Draw every figure that runs and measurements on disk allow; print the summary. See `--help`."""

from pcr_exp.runners.figures import main

if __name__ == "__main__":
    main()
