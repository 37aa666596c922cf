"""Quality measurements: rows on disk, their summary, and their figures."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.caption import NOT_TIMED, Caption, describe_hardware
from pcr_exp.analysis.figure import BELOW, draw_panels, note, panel_title, panels, save_figure, ticks_in_bytes
from pcr_exp.analysis.frame import WHOLE, crops_of, describe_ms_ssim
from pcr_exp.analysis.style import INK, MUTED, OTHER_STYLES, fallback_style, group_color, group_marker, style
from pcr_exp.analysis.tables import Cell, kilobytes, markdown_table, percent, span
from pcr_exp.errors import RunError
from pcr_exp.measuring.quality import QUALITY_COLUMNS, summarise_crops, summarise_quality
from pcr_exp.records.index import RecordIndex
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.provenance import write_measured
from pcr_exp.system.words import counted

log = logging.getLogger(__name__)

ROWS_FILE = "quality.csv"

SUMMARY_FILE = "quality_summary.csv"

META_FILE = "quality.json"

REMEDY = "Measure it again with `python -m experiments.quality`."

SET_COLUMNS = ["dataset", "split", "fingerprint", "decode", "antialias"]
"""Columns that identify a measurement; `dataset` is a display name, and never used for a lookup."""


def write_quality(
    folder: str | Path, quality: pd.DataFrame, index: RecordIndex, settings: Mapping[str, Any]
) -> None:
    """Write quality.csv, quality_summary.csv and quality.json (provenance) of rows measured on `index`.

    The JSON file is written last, so a folder that has it is complete.

    Args:
        folder: Created if it does not exist.
        quality: Rows of QUALITY_COLUMNS.
        index: Index of the measured records.
        settings: `decode`, `antialias` and further entries of the JSON file, such as the key of the images.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "dataset": index.dataset,
        "split": index.split,
        "fingerprint": index.fingerprint,
        "num_images": int(quality["id"].nunique()),
        "num_images_in_split": index.num_samples,
        "groups": sorted(int(group) for group in quality["group"].unique()),
        **settings,
    }
    write_atomic(folder / ROWS_FILE, [quality.to_csv(index=False).encode()])
    write_atomic(folder / SUMMARY_FILE, [summarise_quality(quality).to_csv(index=False).encode()])
    write_measured(folder / META_FILE, facts, packages=["pytorch-msssim"])


def load_quality(quality_root: str | Path) -> pd.DataFrame:
    """Return all measurements below `quality_root`, with SET_COLUMNS in front; empty if there are none.

    Repeated measurements of the same records in the same decode mode would be averaged, so only one is used
    (`read_metas`). If sets share a name, it is extended by the start of the fingerprint and the decode mode.

    Raises:
        RunError: a measurement is damaged.
    """
    parts = []
    for meta_path, meta in read_metas(quality_root):
        rows_path = meta_path.with_name(ROWS_FILE)
        try:
            rows = pd.read_csv(rows_path)
        except (OSError, ValueError) as error:
            raise _damaged(meta_path, error) from error
        if list(rows.columns) != QUALITY_COLUMNS:
            given = f"{rows_path} has columns {list(rows.columns)}"
            raise RunError(f"{given}; wanted {QUALITY_COLUMNS}. {REMEDY}")
        of_set = {column: meta[column] for column in SET_COLUMNS}
        parts.append(pd.concat([pd.DataFrame(of_set, index=rows.index), rows], axis=1))
    if not parts:
        return pd.DataFrame(columns=[*SET_COLUMNS, *QUALITY_COLUMNS])
    quality = pd.concat(parts, ignore_index=True)
    sets = quality[SET_COLUMNS].drop_duplicates()
    namesakes = set(sets.loc[sets["dataset"].duplicated(), "dataset"])
    distinguishing = quality["dataset"] + " " + quality["fingerprint"].str[:4] + ", " + quality["decode"]
    return quality.assign(
        dataset=quality["dataset"].where(~quality["dataset"].isin(namesakes), distinguishing)
    )


def read_metas(quality_root: str | Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the path and the contents of the JSON file of each measurement below a folder.

    Of several measurements of the same records in the same decode mode, the one with most images is used,
    then most groups, then the latest date. The log names the others.

    Raises:
        RunError: a file is damaged.
    """
    found: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    for path in sorted(Path(quality_root).rglob(META_FILE)):
        try:
            meta = json.loads(path.read_text())
            of_set = {column: meta[column] for column in SET_COLUMNS}
            _how_much((path, meta))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error
        key = tuple(value for column, value in of_set.items() if column != "dataset")
        best = max(found.get(key, (path, meta)), (path, meta), key=_how_much)
        if key in found:
            left_out = path if best[0] != path else found[key][0]
            log.warning("%s is left out: it measures the same images as %s", left_out.parent, best[0].parent)
        found[key] = best
    return sorted(found.values(), key=lambda each: each[0])


def _how_much(measurement: tuple[Path, dict[str, Any]]) -> tuple[int, int, str]:
    _, meta = measurement
    return meta["num_images"], len(meta["groups"]), meta["measured_at"]


def _damaged(meta_path: Path, error: Exception) -> RunError:
    return RunError(f"{meta_path} or {ROWS_FILE} in its folder is damaged: {error}. {REMEDY}")


def is_measured(folder: str | Path) -> bool:
    """Return whether `write_quality` has finished in `folder`."""
    return (Path(folder) / META_FILE).exists()


def summary_markdown(summary: pd.DataFrame, dataset: str, split: str) -> str:
    """Return a Markdown table of bytes, MS-SSIM and SSIM of every scan group, from quality_summary.csv."""
    highest = float(summary["bytes_mean"].iloc[-1])

    def spread(measure: str) -> Cell:
        return lambda row: (
            f"{row[f'{measure}_mean']:.3f} ({row[f'{measure}_p5']:.3f} to {row[f'{measure}_p95']:.3f})"
        )

    columns: dict[str, Cell] = {
        "scan group": lambda row: str(row["group"]),
        "an image": lambda row: kilobytes(row["bytes_mean"]),
        f"of group {summary['group'].iloc[-1]}": lambda row: percent(row["bytes_mean"] / highest),
        "MS-SSIM": spread("ms_ssim"),
        "SSIM": spread("ssim"),
    }
    n = counted(int(summary["n"].min()), "whole image")
    return f"{dataset}, {split}: means of {n}, with the 5th to 95th percentile\n\n" + markdown_table(
        summary, columns
    )


NAMED_GROUPS = (1, 2, 5)
"""Groups whose points carry their value: those that the paper plots, except the reference itself."""

MEAN = {"marker": "D", "markerfacecolor": "white", "markeredgecolor": INK, "markersize": 4}

REFERENCE_MODE = "libjpeg"

_MODE_STYLES = {
    "libjpeg": (INK, "s", (0, (4.0, 1.6))),
    "unsmoothed": (*OTHER_STYLES[1], "-"),
    "scaled": (*OTHER_STYLES[0], "-"),
}
"""Colour, marker and dashes by decode mode."""


def draw_mssim_vs_scan(quality: pd.DataFrame) -> Figure:
    """Draw MS-SSIM of whole images (columns of `measure_quality` and `dataset`), two panels per dataset.

    The left panel is over the scan group, the right one over mean bytes per image (log scale). Points are
    means; bars are the 5th to 95th percentile over images.
    """
    with style():
        datasets = sorted(quality["dataset"].unique())
        figure, axes = panels(2 * len(datasets), max_columns=2)
        for i, dataset in enumerate(datasets):
            summary = summarise_quality(quality[quality["dataset"] == dataset])
            against_group, against_bytes = axes[2 * i], axes[2 * i + 1]
            _draw_quality(against_group, summary, summary["group"])
            against_group.set_xticks(summary["group"])
            against_group.set_xlabel("scan group")
            _draw_quality(against_bytes, summary, summary["bytes_mean"])
            low, high = summary["bytes_mean"].min() / 1.25, summary["bytes_mean"].max() * 1.25
            against_bytes.set_xscale("log")
            against_bytes.set_xlim(low, high)
            ticks_in_bytes(against_bytes.xaxis, low, high)
            against_bytes.set_xlabel("mean bytes per image (log scale)")
            facts = f"n = {summary['n'].min()} images, mean and 5th to 95th percentile"
            panel_title(against_group, f"{dataset} · quality per scan group", facts)
            panel_title(against_bytes, f"{dataset} · quality per byte", facts)
            against_bytes.sharey(against_group)
    return figure


def _in_order(modes: pd.Series) -> list[str]:
    """Return decode modes in the order of `_MODE_STYLES`, then others by name."""
    there = set(modes)
    return [*(mode for mode in _MODE_STYLES if mode in there), *sorted(there - set(_MODE_STYLES))]


def _draw_quality(ax: Axes, summary: pd.DataFrame, x: pd.Series) -> None:
    ax.plot(x, summary["ms_ssim_mean"], color=MUTED, linewidth=1, zorder=2)
    columns = (summary[name] for name in ("group", "ms_ssim_mean", "ms_ssim_p5", "ms_ssim_p95"))
    for position, group, mean, low, high in zip(x, *columns, strict=True):
        color = group_color(group)
        ax.vlines(position, low, high, color=color, linewidth=2.2, alpha=0.55, zorder=3)
        look: dict[str, Any] = {"markersize": 7, "markeredgecolor": "white", "zorder": 4}
        ax.plot(position, mean, group_marker(group), color=color, **look)
        if group in NAMED_GROUPS:
            note(ax, f"{mean:.3f}", (position, mean), (5, -12), fontsize=8.5)
    ax.set_ylabel(describe_ms_ssim([WHOLE]))
    ax.set_ylim(top=1.01)


def draw_bytes_per_group(quality: pd.DataFrame) -> Figure:
    """Draw a box plot of bytes per image over scan groups (columns id, group, bytes, dataset), by dataset.

    Box: quartiles and median; whiskers: 5th to 95th percentile; diamond: mean. The share above each box is
    mean bytes over the mean bytes of the highest group measured. The axis is logarithmic: sizes differ by
    factors.
    """
    found = []
    for dataset, rows in quality.groupby("dataset", sort=True):
        facts = f"n = {rows['id'].nunique()} images; % = mean, of group {rows['group'].max()}"
        found.append((str(dataset), facts, rows))
    return draw_panels(found, _draw_boxes)


def _draw_boxes(ax: Axes, rows: pd.DataFrame) -> None:
    groups = sorted(rows["group"].unique())
    sizes = [rows.loc[rows["group"] == group, "bytes"].to_numpy() for group in groups]
    boxes = ax.boxplot(
        sizes,
        positions=range(len(groups)),
        tick_labels=[str(group) for group in groups],
        whis=(5, 95),
        showfliers=False,
        showmeans=True,
        widths=0.62,
        patch_artist=True,
        medianprops={"color": "white", "linewidth": 1.6},
        meanprops=MEAN,
        whiskerprops={"color": MUTED},
        capprops={"color": MUTED},
    )
    for box, group in zip(boxes["boxes"], groups, strict=True):
        box.set(facecolor=group_color(group), edgecolor="none")
    whiskers = [float(np.percentile(size, 95)) for size in sizes]
    for position, (size, whisker) in enumerate(zip(sizes, whiskers, strict=True)):
        share = f"{100 * size.mean() / sizes[-1].mean():.3g}%"
        note(ax, share, (position, whisker), (0, 4), ha="center", fontsize=8, color=MUTED)
    low, high = float(np.percentile(sizes[0], 5)) / 1.3, max(whiskers) * 1.3
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ticks_in_bytes(ax.yaxis, low, high)
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("read up to scan group")
    ax.set_ylabel("bytes per image (log scale)")


def draw_decode_modes(crops: pd.DataFrame, name: str) -> Figure:
    """Draw MS-SSIM of random crops (columns of `measure_crops` and `dataset`), two panels per dataset.

    Left: the mean over images per scan group. Right: each mode's mean difference to `libjpeg`, with two
    standard errors. `name` is the label of MS-SSIM, with the size of the crops.
    """
    with style():
        datasets = sorted(crops["dataset"].unique())
        figure, axes = panels(2 * len(datasets), max_columns=2)
        for i, dataset in enumerate(datasets):
            of_dataset = crops[crops["dataset"] == dataset]
            summary = summarise_crops(of_dataset)
            means, differences = axes[2 * i], axes[2 * i + 1]
            positions = range(len(summary))
            for mode in _in_order(of_dataset["decode"]):
                color, marker, dashes = _MODE_STYLES.get(mode) or (*fallback_style(mode), "-")
                look: dict[str, Any] = {"color": color, "marker": marker, "linestyle": dashes, "label": mode}
                means.plot(positions, summary[f"{mode}_mean"], **look)
                if f"{mode}_minus_{REFERENCE_MODE}" in summary:
                    differences.errorbar(
                        positions,
                        summary[f"{mode}_minus_{REFERENCE_MODE}"],
                        yerr=2 * summary[f"{mode}_minus_{REFERENCE_MODE}_sem"],
                        capsize=3,
                        **look,
                    )
            facts = f"n = {summary['n'].min()} images, one random crop each"
            panel_title(means, f"{dataset} · crops by decode mode", f"{facts}; mean")
            panel_title(
                differences, f"{dataset} · difference to {REFERENCE_MODE}", f"{facts}; mean ± 2 std errors"
            )
            differences.axhline(0, color=MUTED, linewidth=1, linestyle=":", zorder=1)
            means.set_ylabel(name)
            differences.set_ylabel(f"{name} less {REFERENCE_MODE}'s")
            for ax in (means, differences):
                ax.set_xticks(positions, [str(group) for group in summary["group"]])
                ax.set_xlabel("scan group")
                if ax.get_legend_handles_labels()[0]:
                    ax.legend(**BELOW, ncols=3)
    return figure


_OF_ANY_FOLDER = "folder"
"""Dataset name of images without a name of their own: they get the name of the measurement's folder."""

_Metas = Mapping[str, Mapping[str, Any]]


def save_quality_figures(quality: pd.DataFrame, measured_in: str | Path, out: str | Path) -> list[Path]:
    """Save `mssim_vs_scan` and `bytes_per_group` of `load_quality(measured_in)` in `out`."""
    metas = metas_by_name(measured_in)
    named = _named(quality, metas)
    per_group = caption_of(metas, "Quality per scan group and per byte", "whole images")
    sizes = caption_of(metas, "Bytes per scan group", "whole images")
    return [
        *save_figure(lambda _: draw_mssim_vs_scan(named), quality, out, "mssim_vs_scan", per_group),
        *save_figure(lambda _: draw_bytes_per_group(named), quality, out, "bytes_per_group", sizes),
    ]


def save_decode_modes(crops: pd.DataFrame, measured_in: str | Path, out: str | Path) -> list[Path]:
    """Save `decode_modes` of crops, whose measurements have their JSON files below `measured_in`."""
    metas = metas_by_name(measured_in)
    sides = sorted({int(meta["crop_size_px"]) for meta in metas.values()})
    size = " / ".join(map(crops_of, sides))
    caption = caption_of(metas, "Quality of crops by decode mode", size)

    def draw(rows: pd.DataFrame) -> Figure:
        return draw_decode_modes(_named(rows, metas), describe_ms_ssim([size]))

    return save_figure(draw, crops, out, "decode_modes", caption)


def metas_by_name(measured_in: str | Path) -> _Metas:
    """Return the contents of the JSON file of each measurement below a folder, by the name of its images.

    Of several measurements of one name, the second and all later names have split and fingerprint, too.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for path, meta in read_metas(Path(measured_in).resolve()):
        name = path.parent.name if meta["dataset"] == _OF_ANY_FOLDER else meta["dataset"]
        unique = f"{name} {meta['split']} {meta['fingerprint'][:4]}, {meta['decode']}"
        found[unique if name in found else name] = meta
    return found


def _named(rows: pd.DataFrame, metas: _Metas) -> pd.DataFrame:
    """Return the rows; if `metas` has a single folder of images without a name, they get its name there."""
    names = [name for name, meta in metas.items() if meta["dataset"] == _OF_ANY_FOLDER]
    return rows.replace({"dataset": {_OF_ANY_FOLDER: names[0]}}) if len(names) == 1 else rows


def caption_of(metas: _Metas, shows: str, size: str) -> Caption:
    """Return the caption of a figure of these measurements; `size` describes the images or crops."""
    hardware = dict.fromkeys(map(describe_hardware, metas.values()))
    return Caption(
        shows=shows,
        of=(f"{', '.join(metas)} · {size} · no model",),
        n=f"n = {span(pd.Series([meta['num_images'] for meta in metas.values()]))} images each",
        hardware=" / ".join(hardware),
        storage=NOT_TIMED,
    )
