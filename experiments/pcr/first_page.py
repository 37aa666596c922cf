"""The README's figure: one image at three scan groups, with accuracy and images/s over bytes.

It is drawn from committed files (summaries of trainings, a measurement of the loader) and a photograph of
scikit-image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from pcr_exp.analysis.caption import Caption
from pcr_exp.analysis.figure import footer, new_figure, panel_title, save_figure
from pcr_exp.analysis.one_image import read_jpeg, tour_scans
from pcr_exp.analysis.style import INK, MUTED, OTHER_STYLES, group_color, style
from pcr_exp.analysis.tables import kilobytes
from pcr_exp.images.transcode import to_progressive

NAME = "first_page"
PHOTOGRAPH = "astronaut"
GROUPS = (1, 5, 10)
TRAINED = (1, 2, 5)
"""Groups at which every task was trained."""
SHOWN = (slice(0, 340), slice(104, 344))
"""Rows and columns of the photograph that are shown."""
TRAININGS = {
    "finetuning/ham10000_folds/deployment_top1.csv": "skin lesions (HAM10000)",
    "finetuning/cars/deployment.csv": "196 car models",
    "finetuning/celebahq/deployment.csv": "smiles (CelebA, 89 x 109 px)",
    "from_scratch/imagenet_13394/deployment.csv": "ten ImageNet classes",
}
"""Name of the line, by file below results/; all are by top-1."""
LOADERS = {
    "from 4.8 MiB/s": ("throttled", "4.76837 MiB/s", "scaled"),
    "from the page cache": ("beside", "unlimited", "scaled, filtered"),
}
"""By line: folder below results/throughput, and storage and decode mode of its rows."""
COLUMNS = ["panel", "line", "group", "n", "image_bytes", "bytes_share", "value", "low", "high"]
_IMAGE, _ACCURACY, _SPEED = "image", "accuracy", "images_per_s"
_BASELINE = "baseline"
_DASHES = ("solid", "dashed", "dashdot")


def first_page_rows(results: Path) -> pd.DataFrame:
    """Return the data of the figure as COLUMNS; group 0 is the baseline.

    `value` is the photograph's MS-SSIM, points of accuracy against the baseline with their 95 % interval, or
    images/s over the baseline's median, from the slowest to the fastest repeat.
    """
    tour = tour_scans(to_progressive(read_jpeg(PHOTOGRAPH)), GROUPS)
    parts = [
        tour.assign(panel=_IMAGE, line=PHOTOGRAPH, n=1, image_bytes=tour["bytes"], bytes_share=tour["share"])
        .assign(value=tour["ms_ssim"])
        .reindex(columns=COLUMNS)
    ]
    for file, line in TRAININGS.items():
        rows = pd.read_csv(results / file).query("tested_at == 'full'")
        rows = rows[(rows["scan"] == _BASELINE) | rows["group"].isin(TRAINED)].astype({"group": int})
        sizes = pd.read_csv((results / file).with_name("summary.csv")).set_index("scan")["mean_image_bytes"]
        lost = rows.assign(
            image_bytes=rows["scan"].map(sizes),
            value=100 * rows["difference_mean"],
            low=100 * (rows["difference_mean"] - rows["difference_ci95"]),
            high=100 * (rows["difference_mean"] + rows["difference_ci95"]),
        )
        parts.append(_over_baseline(lost, _ACCURACY, line, rows["scan"]))
    for line, (folder, storage, decode) in LOADERS.items():
        speeds = pd.read_csv(results / "throughput" / folder / "throughput_summary.csv")
        speeds = speeds[speeds["model_images_per_s"].isna() & speeds["loader"].str.match("baseline|group_")]
        rows = speeds[(speeds["storage"] == storage) & (speeds["decode"] == decode)]
        ends = zip(("median", "min", "max"), ("value", "low", "high"), strict=True)
        rates = rows.rename(columns={f"images_per_s_{end}": name for end, name in ends})
        rates[["value", "low", "high"]] /= rates.loc[rates["loader"] == _BASELINE, "value"].item()
        rates["group"] = rates["loader"].str.removeprefix("group_").replace(_BASELINE, "0").astype(int)
        parts.append(_over_baseline(rates, _SPEED, line, rates["loader"]))
    return pd.concat(parts, ignore_index=True)


def _over_baseline(rows: pd.DataFrame, panel: str, line: str, scan: pd.Series[str]) -> pd.DataFrame:
    whole = rows.loc[scan == _BASELINE, "image_bytes"].item()
    return rows.assign(panel=panel, line=line, bytes_share=rows["image_bytes"] / whole)[COLUMNS]


def draw_first_page(rows: pd.DataFrame) -> Figure:
    """Draw the images of GROUPS and the two panels, side by side."""
    tour = tour_scans(to_progressive(read_jpeg(PHOTOGRAPH)), GROUPS)
    with style():
        figure = new_figure(13.2, 3.5)
        widths = [1] * len(GROUPS) + [2.4] * 2
        *images, accuracy, speed = figure.subplots(1, len(widths), width_ratios=widths)
        for ax, row in zip(images, tour.to_dict("records"), strict=True):
            _show(ax, row)
        _draw_accuracy(accuracy, rows[rows["panel"] == _ACCURACY])
        _draw_speed(speed, rows[rows["panel"] == _SPEED])
        footer(figure, "Bars: 95 % intervals over seeds or folds; images/s: native ImageNet files.")
    return figure


def _show(ax: Axes, row: dict[Any, Any]) -> None:
    ax.imshow(row["image"][SHOWN])
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"{kilobytes(row['bytes'])}")
    ax.set_xlabel(f"scan group {row['group']}\n{100 * row['share']:.0f} % of the bytes")
    for spine in ax.spines.values():
        spine.set(visible=True, color=group_color(row["group"]), linewidth=2)


def _draw_accuracy(ax: Axes, rows: pd.DataFrame) -> None:
    for (color, marker), (line, lost) in zip(OTHER_STYLES, rows.groupby("line", sort=False), strict=False):
        lost = lost.sort_values("bytes_share")
        ends = np.abs(lost[["low", "high"]].to_numpy() - lost[["value"]].to_numpy()).T
        ax.errorbar(
            lost["bytes_share"], lost["value"], ends, color=color, marker=marker, label=line, elinewidth=0.9
        )
    ax.axhline(0, color=MUTED, linewidth=1, linestyle=":", zorder=1)
    _bytes_axis(ax)
    ax.set_ylabel("points of top-1")
    groups = ", ".join(map(str, TRAINED))
    panel_title(ax, "Accuracy", f"trained on groups {groups}, tested on whole images", across=2)
    ax.legend(loc="lower right", fontsize=8)


def _draw_speed(ax: Axes, rows: pd.DataFrame) -> None:
    shares = np.linspace(rows["bytes_share"].min(), 1, 50)
    ax.plot(shares, 1 / shares, color=MUTED, linestyle=":", linewidth=1.2, label="as the bytes say")
    lines = rows[rows["group"] > 0].groupby("line", sort=False)
    for (color, marker), dashes, (line, rates) in zip(OTHER_STYLES[4:], _DASHES, lines, strict=False):
        rates = rates.sort_values("bytes_share")
        look: dict[str, Any] = {"color": color, "marker": marker, "linestyle": dashes}
        ax.plot(rates["bytes_share"], rates["value"], label=line, **look)
    ax.plot([1], [1], color=INK, marker="s", linestyle="none", label="the files (baseline)")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} x"))
    ax.axhline(1, color=INK, linewidth=0.8, zorder=1)
    _bytes_axis(ax)
    ax.set_ylabel("images/s over all bytes")
    panel_title(ax, "Reading", "groups 1, 2, 5, 10; the loader alone", across=2)
    ax.legend(loc="upper right", fontsize=8)


def _bytes_axis(ax: Axes) -> None:
    ax.set_xlim(0, 1.04)
    ax.set_xlabel("bytes of an image, share of its file")
    ax.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))


def write_first_page(results: Path, out: Path) -> list[Path]:
    """Draw `first_page` from the files below `results`. Return the paths of the files written."""
    rows = first_page_rows(results)
    caption = Caption(
        shows="Fewer bytes of each image: how it looks, what a network learns, how fast it is read",
        of=("EfficientNet-Lite0 fine-tuned at 96 px (lesions: 128), ShuffleNetV2 from scratch (ImageNet)",),
        n="n = 5 folds (cars: 3; ImageNet: 3 seeds); images/s: n = 3 and 5",
        storage="storage: 4.8 MiB/s, and no limit",
        hardware="2 CPU cores, no GPU",
    )
    return save_figure(draw_first_page, rows, out, NAME, caption)
