"""What a task tolerates: final accuracy against image quality, with a line where there are levels enough."""

from __future__ import annotations

import pandas as pd

from pcr_exp.analysis.core.run_quality import BY_DEFINITION
from pcr_exp.analysis.core.statistics import LEAST_LEVELS, NEVER, line_through
from pcr_exp.analysis.core.summary import GROUP_KEYS

POINT_COLUMNS = [
    *(*GROUP_KEYS, "scan", "seed", "ms_ssim", "num_scales", "ms_ssim_of", "final_top1"),
    *("majority_share", "num_classes"),
]
FIT_COLUMNS = [
    *(
        *GROUP_KEYS,
        "slope",
        "slope_ci95",
        "intercept",
        "r",
        "num_points",
        "num_levels",
        "num_seeds",
        "no_line",
    )
]
ALL_SCANS = "all scans"
"""The level of the baseline and of the last scan group: their pixels are the same."""


def tolerance_points(runs: pd.DataFrame) -> pd.DataFrame:
    """One row of POINT_COLUMNS per seed and level of quality, of `runs_frame`'s runs whose quality is known.

    The baseline and the last scan group show the same pixels: of one seed they are one point, ALL_SCANS, at
    their mean accuracy. So are runs of one seed that differ in workers or hardware alone.
    """
    known = runs[runs["ms_ssim"].notna()]
    if known.empty:
        return pd.DataFrame(columns=POINT_COLUMNS)
    level = known["scan"].where(known["ms_ssim_of"] != BY_DEFINITION, ALL_SCANS)
    keys = [*GROUP_KEYS, "scan", "seed"]
    points = known.assign(scan=level).groupby(keys, sort=True)
    facts = points[["ms_ssim", "num_scales", "ms_ssim_of", "majority_share", "num_classes"]].first()
    return facts.join(points["final_top1"].mean()).reset_index()[POINT_COLUMNS]


def tolerance_fits(points: pd.DataFrame) -> pd.DataFrame:
    """One row of FIT_COLUMNS per GROUP_KEYS: final_top1 = slope x MS-SSIM + intercept, if there is a line.

    As `line_through` the means of levels over seeds: top-1 (0..1) per unit of MS-SSIM, with half of its 95 %
    interval. `no_line` says why there is none, and then the numbers are NaN.
    """
    rows = []
    for key, part in points.groupby(GROUP_KEYS, sort=True):
        levels = part.groupby("scan")[["ms_ssim", "final_top1"]].mean()
        line = line_through(levels, "ms_ssim", "final_top1")
        numbers = (NEVER,) * 4 if line is None else (line.slope, line.slope_ci95, line.intercept, line.r)
        why = "" if line else f"no line: {len(levels)} levels of quality, a line wants {LEAST_LEVELS}"
        rows.append((*key, *numbers, len(part), len(levels), part["seed"].nunique(), why))
    return pd.DataFrame(rows, columns=FIT_COLUMNS)
