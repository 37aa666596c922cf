"""Measure MS-SSIM, SSIM and bytes per scan group; draw them. See `--help`."""

from pcr_exp.cli import start

if __name__ == "__main__":
    start("quality")
