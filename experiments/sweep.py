"""Look at sweeps: `status`, `wait`, `table`, `stop`. See `--help`."""

from pcr_exp.runners.sweep import main

if __name__ == "__main__":
    main()
