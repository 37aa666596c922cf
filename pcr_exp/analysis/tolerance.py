"""What a task tolerates: final accuracy against image quality, with a straight line through it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pcr_exp.analysis.summary import GROUP_KEYS, ms_ssim_of

POINT_COLUMNS = ["run_id", *GROUP_KEYS, "scan", "encoding", "group", "seed", "ms_ssim", "final_top1"]
FIT_COLUMNS = [*GROUP_KEYS, "slope", "intercept", "r", "num_runs", "num_levels"]


def tolerance_points(runs: pd.DataFrame, quality: pd.DataFrame) -> pd.DataFrame:
    """One row of POINT_COLUMNS per run of `runs_frame` whose dataset and scan group have been measured.

    `ms_ssim` is the mean of the dataset's quality rows at the run's group; 1 for the baseline.
    """
    if runs.empty:
        return pd.DataFrame(columns=POINT_COLUMNS)
    points = runs.assign(ms_ssim=[ms_ssim_of(run, quality) for _, run in runs.iterrows()])
    return points.loc[points["ms_ssim"].notna(), POINT_COLUMNS].reset_index(drop=True)


def tolerance_fits(points: pd.DataFrame) -> pd.DataFrame:
    """One row of FIT_COLUMNS per GROUP_KEYS: final_top1 = slope x MS-SSIM + intercept.

    Least squares over runs, each a point; `r` is Pearson's. The slope is top-1 (0..1) per unit of MS-SSIM:
    what a task loses with quality. NaN where all points have one MS-SSIM; `r` also where all have one top-1.
    """
    rows = []
    for key, part in points.groupby(GROUP_KEYS, sort=True):
        x, y = part["ms_ssim"].to_numpy(float), part["final_top1"].to_numpy(float)
        slope = intercept = r = float("nan")
        if np.ptp(x) > 0:
            slope, intercept = (float(value) for value in np.polyfit(x, y, 1))
            r = float(np.corrcoef(x, y)[0, 1]) if np.ptp(y) > 0 else r
        rows.append((*key, slope, intercept, r, len(part), part["scan"].nunique()))
    return pd.DataFrame(rows, columns=FIT_COLUMNS)
