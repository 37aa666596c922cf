"""Measure loaders side by side, or predict what a cluster's would do; draw it. See `--help`."""

from pcr_exp.runners.throughput import main

if __name__ == "__main__":
    main()
