"""What images lose per scan group: MS-SSIM and bytes, measured and on disk.

`experiments.quality` writes and draws measurements; `load_quality` gives them to the tables of runs.
"""
