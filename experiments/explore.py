"""Write one page that shows what the network would see. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("explore")
