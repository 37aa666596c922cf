"""Measure what compressed activations cost and save on one batch; draw it. See `--help`."""

from pcr_exp.runners.activation_study import main

if __name__ == "__main__":
    main()
