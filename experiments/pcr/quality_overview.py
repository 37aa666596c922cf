"""Bytes and quality of scan groups, for several datasets in one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.figure import enlarge, footer, panels, percent_axis, save_figure
from pcr_exp.analysis.frame import WHOLE, describe_ms_ssim
from pcr_exp.analysis.quality import META_FILE, REMEDY, caption_of, load_quality, metas_by_name
from pcr_exp.analysis.style import OTHER_STYLES, style
from pcr_exp.errors import RunError
from pcr_exp.measuring.quality import summarise_quality

NAME = "overview"

MAX_DATASETS = 6

OVERVIEW_COLUMNS = ["dataset", "group", "n", "bytes_mean", "bytes_share", "ms_ssim_mean", "ms_ssim_p5"]


def quality_overview(quality_root: Path) -> pd.DataFrame:
    """Return a row of OVERVIEW_COLUMNS per measurement and group; measurements are named after their folders.

    `bytes_share` (0..1) is relative to the mean bytes at the highest group measured.

    Raises:
        RunError: as `load_quality`, or there is no measurement.
    """
    folders = sorted(path.parent for path in quality_root.rglob(META_FILE))
    if not folders:
        raise RunError(f"{quality_root} holds no measurement. {REMEDY}")
    parts = []
    for folder in folders:
        summary = summarise_quality(load_quality(folder)).assign(dataset=folder.name)
        parts.append(summary.assign(bytes_share=summary["bytes_mean"] / summary["bytes_mean"].max()))
    return pd.concat(parts, ignore_index=True)[OVERVIEW_COLUMNS]


def draw_quality_overview(overview: pd.DataFrame) -> Figure:
    """Draw mean MS-SSIM and the share of bytes per scan group, for the first MAX_DATASETS datasets."""
    datasets = list(overview["dataset"].unique())[:MAX_DATASETS]
    with style():
        figure, (kept, cost) = panels(2)
        enlarge(figure, 1.4, 0.6)
        for (color, marker), dataset in zip(OTHER_STYLES, datasets, strict=False):
            rows = overview[overview["dataset"] == dataset]
            look: dict[str, Any] = {
                "color": color,
                "marker": marker,
                "markeredgecolor": "white",
                "linewidth": 1.6,
            }
            kept.plot(rows["group"], rows["ms_ssim_mean"], label=dataset, **look)
            cost.plot(rows["group"], rows["bytes_share"], **look)
        kept.set_ylabel(f"mean {describe_ms_ssim([WHOLE])}")
        cost.set_ylabel("bytes, share of all scans")
        percent_axis(cost.yaxis)
        cost.set_ylim(bottom=0)
        for ax in (kept, cost):
            ax.set_xticks(sorted(overview["group"].unique()))
            ax.set_xlabel("read up to scan group")
        figure.legend(*kept.get_legend_handles_labels(), loc="outside right center")
        footer(figure, "decoded by libjpeg; colours are datasets")
    return figure


def save_overview(quality_root: Path, out: Path) -> list[Path]:
    """Save the `overview` of all measurements below a folder."""
    overview = quality_overview(quality_root)
    shows = "What each scan group keeps, and what it costs"
    caption = caption_of(metas_by_name(quality_root), shows, "whole images")
    return save_figure(draw_quality_overview, overview, out, NAME, caption)
