"""Look at sweeps: `status`, `wait`, `table`, `stop`. See `--help`."""

from pcr_exp.cli.sweep import main

if __name__ == "__main__":
    main()
