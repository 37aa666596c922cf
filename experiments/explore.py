"""See what the network would see: one page. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("explore")
