"""Tolerance of a task: final accuracy against image quality, as a table, lines and a figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from pcr_exp.analysis.accuracy import per_panel
from pcr_exp.analysis.figure import BELOW, accuracy_axis, draw_panels, marks_without_bars
from pcr_exp.analysis.frame import BY_DEFINITION, GROUP_KEYS, LEVEL, describe_ms_ssim
from pcr_exp.analysis.intervals import half_of
from pcr_exp.analysis.marks import chance_lines
from pcr_exp.analysis.page import Output
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.reporting_rules import NAN
from pcr_exp.analysis.statistics import REPEAT, half_width, repeat_of
from pcr_exp.analysis.style import MUTED, ScanLevel, scan_levels
from pcr_exp.config.scan_scripts import NUM_GROUPS

_FACTS = ["ms_ssim", "num_scales", "ms_ssim_of", "majority_share", "num_classes", "headline"]
POINT_COLUMNS = [
    *(*GROUP_KEYS, *LEVEL, "seed", "fold", "ms_ssim", "num_scales", "ms_ssim_of", "final_score"),
    *("majority_share", "num_classes", "headline"),
]
FIT_COLUMNS = [
    *(*GROUP_KEYS, "slope", "slope_ci95", "intercept", "r"),
    *("num_points", "num_levels", "num_seeds", "no_line"),
]
ALL_SCANS = "all scans"
"""Level of the baseline and of the last scan group, whose pixels are the same."""
LEAST_SPAN_TOP1 = 0.10
LEAST_LEVELS = 5
"""Minimum number of quality levels for a line; three or four lie on one too easily."""
BENT = 0.05
"""Significance level of the bend test. Below it a parabola fits so much better that there is no line."""


def tolerance_points(runs: pd.DataFrame) -> pd.DataFrame:
    """Return POINT_COLUMNS: a row per seed (and fold) and quality level, for `run_frame` of known quality.

    The baseline and the last scan group show the same pixels. For each seed they are one point, ALL_SCANS, at
    their mean accuracy. Runs of one seed that differ only in workers or hardware are merged too.
    """
    known = runs[runs["ms_ssim"].notna()]
    if known.empty:
        return pd.DataFrame(columns=POINT_COLUMNS)
    shows_all = known["ms_ssim_of"] == BY_DEFINITION
    levels = known.assign(
        scan=known["scan"].mask(shows_all, ALL_SCANS),
        encoding=known["encoding"].mask(shows_all, "baseline"),
        group=known["group"].mask(shows_all, NUM_GROUPS),
    )
    points = levels.groupby([*GROUP_KEYS, "scan", *REPEAT], sort=True)
    return points.agg(
        dict.fromkeys(["encoding", "group", *_FACTS], "first") | {"final_score": "mean"}
    ).reset_index()[POINT_COLUMNS]


def tolerance_fits(points: pd.DataFrame) -> pd.DataFrame:
    """Return a row of FIT_COLUMNS per GROUP_KEYS: final_score = slope x MS-SSIM + intercept, if a line fits.

    `line_through` fits the means of levels over seeds. The slope is score (0..1) per unit of MS-SSIM, with
    half of its 95 % interval. If levels are too few or bend, `no_line` gives the reason, with NaN numbers.
    """
    rows = []
    for key, part in points.groupby(GROUP_KEYS, sort=True):
        levels = part.groupby("scan")[["ms_ssim", "final_score"]].mean()
        line = line_through(levels, "ms_ssim", "final_score")
        why = "" if line else f"no line: {len(levels)} levels of quality, a line wants {LEAST_LEVELS}"
        if line and line.bend_p < BENT:
            why = f"no line: {len(levels)} levels of quality lie on a curve (p = {line.bend_p:.2g})"
        numbers = (NAN,) * 4
        if line and not why:
            numbers = (line.slope, line.slope_ci95, line.intercept, line.r)
        num_seeds = len(part[repeat_of(part)].drop_duplicates())
        rows.append((*key, *numbers, len(part), len(levels), num_seeds, why))
    return pd.DataFrame(rows, columns=FIT_COLUMNS)


def draw_accuracy_vs_mssim(points: pd.DataFrame) -> Figure:
    """Draw final score against MS-SSIM of `tolerance_points`, one panel per dataset, label and model.

    Small marks are seeds. Large marks are means over seeds, with their 95 % interval for two or more. The
    line is from `tolerance_fits`; the subtitle describes it, or why there is none. The baseline and the last
    scan group have the same pixels, and are one point at MS-SSIM 1.
    """
    found = [
        (title, f"{subtitle}\n{_measured_on(rows)}\n{_describe_fit(rows)}", rows)
        for title, subtitle, rows in per_panel(points)
    ]
    return draw_panels(found, _draw_panel)


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    (fit,) = tolerance_fits(rows).to_dict("records")
    if not fit["no_line"]:
        ends = [rows["ms_ssim"].min(), rows["ms_ssim"].max()]
        line = [fit["slope"] * x + fit["intercept"] for x in ends]
        ax.plot(ends, line, color=MUTED, linewidth=1.2, zorder=2)
    for level, seeds in scan_levels(rows):
        _draw_level(ax, level, seeds)
    chance_lines(ax, rows)
    ax.set_xlabel(f"mean {_name_of(rows)}")
    accuracy_axis(ax, rows)
    ax.set_ylabel(f"last validation {metric_of(rows).words}")
    _widen(ax)
    ax.legend(*marks_without_bars(ax), **BELOW, ncols=5, handletextpad=0.1)


def _draw_level(ax: Axes, level: ScanLevel, seeds: pd.DataFrame) -> None:
    look: dict[str, Any] = {"color": level.color, "marker": level.marker}
    if len(seeds) > 1:
        ax.plot(seeds["ms_ssim"], seeds["final_score"], **look, linestyle="", markersize=4, alpha=0.45)
    mean = seeds["final_score"].mean()
    width = half_width(seeds["final_score"])
    ax.errorbar(
        seeds["ms_ssim"].mean(),
        mean,
        None if width != width else width,
        **look,
        linestyle="",
        markersize=8,
        markeredgecolor="white",
        elinewidth=1,
        capsize=3,
        zorder=4,
        label=level.words,
    )


def _measured_on(rows: pd.DataFrame) -> str:
    measured = rows[rows["scan"] != ALL_SCANS]
    scales = measured["num_scales"].dropna()
    low, high = (int(scales.min()), int(scales.max())) if len(scales) else (0, 0)
    count = f", {low}{f' to {high}' if low < high else ''} scales" if high else ""
    return f"{_name_of(rows)}{count}"


def _name_of(rows: pd.DataFrame) -> str:
    return describe_ms_ssim(rows["ms_ssim_of"])


def _describe_fit(rows: pd.DataFrame) -> str:
    """Describe the line, or why there is none."""
    (fit,) = tolerance_fits(rows).to_dict("records")
    if fit["no_line"]:
        return str(fit["no_line"])
    return (
        f"slope {fit['slope']:.2f} ± {fit['slope_ci95']:.2f} (95 %) {metric_of(rows).words} per MS-SSIM, "
        f"{fit['num_levels']} levels, r = {fit['r']:.2f}"
    )


def _widen(ax: Axes) -> None:
    """Show at least 10 points of accuracy, because noise looks like a trend on a finer scale."""
    low, high = ax.get_ylim()
    missing = max(0.0, LEAST_SPAN_TOP1 - (high - low))
    ax.set_ylim(low - missing / 2, high + missing / 2)


@dataclass(frozen=True, slots=True)
class Line:
    """y = slope x x + intercept, with the uncertainty of the slope."""

    slope: float
    intercept: float
    slope_ci95: float
    """Half of the slope's 95 % interval."""
    r: float
    """Pearson's correlation; NaN if all y are equal."""
    bend_p: float
    """p-value of the F test of a parabola's quadratic coefficient; the null hypothesis is a line."""


def line_through(levels: pd.DataFrame, x: str, y: str) -> Line | None:
    """Fit a least-squares line through the means of levels, one point each; None for fewer than LEAST_LEVELS.

    The slope's interval is Student's t over the levels' residuals (levels - 2 degrees of freedom). The
    uncertainty is whether the levels are on a line at all, which more seeds of the same levels cannot settle.
    """
    if levels[x].nunique() < LEAST_LEVELS:
        return None
    xs, ys = levels[x].to_numpy(float), levels[y].to_numpy(float)
    found = stats.linregress(xs, ys)
    width = float(half_of(found.stderr, len(xs) - 2))
    r = float(found.rvalue) if np.ptp(ys) > 0 else math.nan
    return Line(float(found.slope), float(found.intercept), width, r, _bend_p(xs, ys))


def _bend_p(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> float:
    centred = xs - xs.mean()
    straight, bent = (
        float(((ys - np.polynomial.Polynomial.fit(centred, ys, degree)(centred)) ** 2).sum())
        for degree in (1, 2)
    )
    if straight <= 1e-12 * max(float(np.ptp(ys)) ** 2, 1e-12):
        return 1.0  # a line, except for rounding
    freedom = len(xs) - 3
    return float(stats.f.sf((straight - bent) / max(bent / freedom, 1e-300), 1, freedom))


def write_accuracy_vs_mssim(output: Output) -> None:
    """Write accuracy_vs_mssim_fits.csv and the figure, if at least two qualities are known."""
    points = tolerance_points(output.frame)
    if points["ms_ssim"].nunique() >= 2:
        output.table("accuracy_vs_mssim_fits", tolerance_fits(points))
        shows = "Final accuracy and image quality"
        output.figure("accuracy_vs_mssim", shows, points, draw_accuracy_vs_mssim)
