"""Measure MS-SSIM, SSIM and bytes per scan group; draw them. See `--help`."""

from pcr_exp.cli.quality import main

if __name__ == "__main__":
    main()
