"""Inspect or stop sweeps: `status`, `wait`, `table`, `stop`. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("sweep")
