"""Evaluations of trained networks at every scan group: rows on disk, table of losses, matrix and page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.caption import NOT_TIMED, Caption, describe_hardware, describe_task
from pcr_exp.analysis.figure import (
    BELOW,
    PANEL_HEIGHT_IN,
    PANEL_WIDTH_IN,
    footer,
    new_figure,
    panel_title,
    panels,
    points_axis,
    same_limits,
    save_figure,
)
from pcr_exp.analysis.statistics import half_width
from pcr_exp.analysis.style import INK, MUTED, describe_scan, group_color, group_marker, level_called, style
from pcr_exp.analysis.tables import NOTHING, Cell, Footnotes, difference_cell, markdown_table, percent
from pcr_exp.config.describe import NO_GROUP
from pcr_exp.config.measuring import NUM_RESAMPLES
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.evaluation import LEVEL_COLUMNS, MARGIN, MODEL_COLUMNS, OF_NUMBERS, OF_SETS
from pcr_exp.measuring.tolerance.answer import image_weights, interval, score
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import cpu_model, gpu_model, write_measured
from pcr_exp.system.words import counted
from pcr_exp.training.task import area_under_roc, primary_metric_named

_APART = 0.09
"""Horizontal distance of the points of top-1 and top-5 from their group, to either side."""


def draw_losses(table: pd.DataFrame) -> Figure:
    """Draw the points lost at every scan group, one panel per decode mode.

    The points are of top-1 (filled) and top-5 (hollow), or of the primary metric of tasks that have neither.

    Args:
        table: Rows of one network, from `level_table`.
    """
    progressive = table[table["encoding"] == "pcr"]
    full = table[table["encoding"] == "baseline"].iloc[0]
    modes = sorted(progressive["decode"].unique())
    with style():
        figure, axes = panels(len(modes))
        for ax, mode in zip(axes, modes, strict=True):
            rows = progressive[progressive["decode"] == mode].sort_values("group")
            _draw_points(ax, rows)
            panel_title(ax, f"decode = {mode}")
        same_limits(axes, [""] * len(axes))
        for ax in axes:
            points_axis(ax, "y")
        axes[0].set_ylabel("points against the original images")
        axes[0].legend(**BELOW, ncols=3)
        footer(
            figure,
            f"original images: {_originals(full)}; bars: 95 % intervals over pairs of one image",
        )
    return figure


def _drawn(table: pd.DataFrame) -> list[tuple[str, float, str]]:
    """Return the drawn measures, each with its horizontal offset from the group and its name in text."""
    if "top1" in table:
        return [("top1", -_APART, "top-1"), ("top5", _APART, "top-5")]
    (headline,) = (name for name in _PRIMARY_METRICS if name in table)
    return [(headline, 0.0, primary_metric_named(headline).words)]


def _originals(full: pd.Series[Any]) -> str:
    return ", ".join(f"{words} {100 * full[name]:.1f}%" for name, _, words in _drawn(full.to_frame().T))


def _draw_points(ax: Axes, rows: pd.DataFrame) -> None:
    places = range(len(rows))
    ax.axhline(0, color=INK, linewidth=1, zorder=1)
    for measure, side, words in _drawn(rows):
        for place, row in zip(places, rows.to_dict("records"), strict=True):
            color = group_color(row["group"])
            ax.errorbar(
                [place + side],
                [100 * row[f"{measure}_difference"]],
                yerr=[100 * row[f"{measure}_ci95"]],
                color=color,
                marker=group_marker(row["group"]),
                markerfacecolor="white" if measure == "top5" else color,
                markersize=7,
                capsize=3,
                linestyle="none",
            )
        fill = "white" if measure == "top5" else MUTED
        ax.plot([], [], color=MUTED, marker="o", markerfacecolor=fill, linestyle="none", label=words)
    ax.set_xticks(list(places), [f"group {group}" for group in rows["group"]])
    ax.set_xlim(-0.5, len(rows) - 0.5)


def draw_matrix(matrix: pd.DataFrame, metric_words: str) -> Figure:
    """Draw one heat map per decode mode: rows are training levels, columns are test levels.

    `matrix` comes from `matrix_table`.
    """
    modes = sorted(matrix.loc[matrix["encoding"] == "pcr", "decode"].unique())
    trained = sorted(matrix["trained_on"].unique(), key=lambda label: level_called(label).place)
    low, high = matrix["score"].min(), matrix["score"].max()
    with style():
        figure = new_figure(PANEL_WIDTH_IN * len(modes), max(PANEL_HEIGHT_IN, 0.5 * len(trained) + 1.6))
        axes = figure.subplots(1, len(modes), squeeze=False)[0]
        for ax, mode in zip(axes, modes, strict=True):
            rows = matrix[(matrix["decode"] == mode) | (matrix["encoding"] == "baseline")]
            tested = rows.drop_duplicates("scan").sort_values(["encoding", "group"])["scan"].tolist()
            cells = rows.pivot_table(index="trained_on", columns="scan", values="score")
            cells = cells.loc[trained, tested]
            ax.imshow(cells, cmap="Greys", vmin=low, vmax=high + (high - low or 1), aspect="auto")
            ax.grid(visible=False)
            for y, values in enumerate(cells.to_numpy()):
                for x, value in enumerate(values):
                    ax.text(x, y, f"{100 * value:.1f}", ha="center", va="center", color=INK)
            ax.set_xticks(range(len(tested)), [describe_scan(scan) for scan in tested])
            ax.set_yticks(range(len(trained)), [describe_scan(scan) for scan in trained])
            ax.set_xlabel("tested at")
            ax.set_ylabel("trained at")
            panel_title(ax, f"decode = {mode}", f"{metric_words} (%)")
    return figure


MEASURES = ("top1", "top5", "loss")

TABLE_COLUMNS = [
    *(*MODEL_COLUMNS, *LEVEL_COLUMNS, "n"),
    *("top1", "top5", "balanced_accuracy", "loss"),
    *(f"{measure}_{part}" for measure in MEASURES for part in ("difference", "ci95")),
]

_PRIMARY_METRICS = ("mean_ap", "r2")
"""Metrics of tasks whose images have no top-1."""
_MAE = "mae"

MATRIX_COLUMNS = ["trained_on", *LEVEL_COLUMNS, "n_seeds", "score", "score_min", "score_max"]


def level_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a table of TABLE_COLUMNS with one row per network and level.

    `<measure>_difference` is the mean over images of the score at this level minus the score of the original
    image. `_ci95` is half its 95 % interval (Student's t, paired by image). `balanced_accuracy` is the mean
    recall of the classes that have an image. `auc` is present if the scores have margins.

    For multi-label tasks `mean_ap`, and for regression `r2` and `mae` (in the label's unit), replace top1,
    top5 and balanced_accuracy. The intervals of `mean_ap` and `r2` come from resampled images.
    """
    rows: list[dict[str, Any]] = []
    measures, judged = MEASURES if "top1" in scores else ("loss",), _judged(scores)
    # Older measurements store the baseline as group 1.
    scores = scores.assign(group=scores["group"].mask(scores["encoding"] == "baseline", NO_GROUP))
    for (name, trained_on, seed), of_model in scores.groupby(MODEL_COLUMNS, sort=True):
        reference = of_model[of_model["encoding"] == "baseline"].set_index("image")
        for level, images in of_model.groupby(LEVEL_COLUMNS, sort=True):
            row = dict(zip([*MODEL_COLUMNS, *LEVEL_COLUMNS], (name, trained_on, seed, *level), strict=True))
            row |= {measure: images[measure].mean() for measure in measures} | {"n": len(images)}
            if "top1" in images:
                row["balanced_accuracy"] = images.groupby("label")["top1"].mean().mean()
            else:
                row |= _primary_metric_lost(judged, images.set_index("image"), reference)
            if MARGIN in images:
                margins, labels = images[MARGIN].to_numpy(), images["label"].to_numpy()
                row["auc"] = area_under_roc(margins, labels == 1)
            for measure in measures:
                differences = images.set_index("image")[measure] - reference[measure]
                row[f"{measure}_difference"] = differences.mean()
                row[f"{measure}_ci95"] = half_width(differences)
            rows.append(row)
    columns = [*TABLE_COLUMNS, *(["auc"] if MARGIN in scores else [])] if "top1" in scores else None
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values([*MODEL_COLUMNS, "decode", "encoding", "group"], ignore_index=True)


def _judged(scores: pd.DataFrame) -> str:
    return "r2" if OF_NUMBERS[0] in scores else "mean_ap"


def _primary_metric_lost(headline: str, images: pd.DataFrame, originals: pd.DataFrame) -> dict[str, float]:
    """Return `mean_ap`, or `r2` and `mae`, with the differences to the originals and half their intervals."""
    originals = originals.loc[images.index]
    if headline == "r2":
        outputs: Any
        targets: Any
        outputs, targets, error = OF_NUMBERS
        differences = images[error] - originals[error]
        mae = {_MAE: images[error].mean(), f"{_MAE}_difference": differences.mean()}
        mae[f"{_MAE}_ci95"] = half_width(differences)
    else:
        outputs, targets = ([name for name in map(str, images) if name.startswith(s)] for s in OF_SETS)
        mae = {}
    weights = image_weights(np.arange(len(images)), NUM_RESAMPLES, seed=0)
    none = np.empty(0, np.int64)
    here, original = (
        score(headline, none, frame[outputs].to_numpy(), frame[targets].to_numpy(), weights)
        for frame in (images, originals)
    )
    low, high = interval((here - original)[1:])
    lost = {f"{headline}_difference": (here - original)[0], f"{headline}_ci95": (high - low) / 2}
    return {headline: here[0], **lost, **mae}


def matrix_table(table: pd.DataFrame, headline: str) -> pd.DataFrame:
    """Return MATRIX_COLUMNS: the primary metric by training level and test level, over seeds."""
    rows = []
    for keys, runs in table.groupby(["trained_on", *LEVEL_COLUMNS], sort=True):
        seeds = runs[headline]  # one row per network
        row = dict(zip(["trained_on", *LEVEL_COLUMNS], keys, strict=True))
        numbers = {"score": seeds.mean(), "score_min": seeds.min(), "score_max": seeds.max()}
        rows.append({**row, "n_seeds": len(seeds), **numbers})
    return pd.DataFrame(rows, columns=MATRIX_COLUMNS)


def levels_markdown(table: pd.DataFrame, headline: str, images: str, split: str) -> str:
    """Return a Markdown table of each network's score at every level, and its loss against the originals.

    The loss is in top-1, or in the primary metric of tasks without top-1.
    """
    lost = Footnotes()
    measure, _, words = _drawn(table)[0]

    def loses(row: Mapping[Any, Any]) -> str:
        if row["encoding"] == "baseline":
            return NOTHING
        names = {"difference_mean": f"{measure}_difference", "difference_ci95": f"{measure}_ci95"}
        return difference_cell({name: row[column] for name, column in names.items()}, lost)

    columns: dict[str, Cell] = {
        "read at": lambda row: f"{row['scan']}, {row['decode']}",
        primary_metric_named(headline).words: lambda row: percent(row[headline]),
        f"{words} against the originals, points": loses,
    }
    if "top5" in table:
        columns["top-5"] = lambda row: percent(row["top5"])
    if _MAE in table:
        columns["mean absolute error"] = lambda row: f"{row[_MAE]:.3g}"
    if table["model"].nunique() > 1:
        columns = {"network": lambda row: str(row["model"]), **columns}
    n = counted(int(table["n"].max()), "image")
    about = f"{images}, {split}: {n}; ± half the 95 % interval over pairs of one image"
    return "\n\n".join(filter(None, [about, markdown_table(table, columns), str(lost)]))


SCORES_FILE, TABLE_FILE, META_FILE = "scores.csv", "levels.csv", "evaluation.json"


def write_evaluation(
    folder: Path, scores: pd.DataFrame, settings: Mapping[str, Any], device: torch.device
) -> list[Path]:
    """Write the scores, their metadata, and the table and figures made from them; return the files.

    Args:
        folder: Created if it does not exist.
        scores: The result of `measuring.evaluation.score_images`.
        settings: `dataset`, `label`, `split`, `model`, `image_size_px`, `headline` (see
            `check_primary_metric`) and further entries of the JSON file.
        device: The device that computed the scores.
    """
    gpu = gpu_model(device)
    num_images = int(scores["image"].nunique())
    facts = {**settings, "num_images": num_images, "gpu": gpu, "hardware": gpu or cpu_model()}
    make_folder(folder)
    write_atomic(folder / SCORES_FILE, [scores.to_csv(index=False).encode()])
    write_measured(folder / META_FILE, facts)
    return [folder / SCORES_FILE, folder / META_FILE, *draw_evaluation(folder)]


def draw_evaluation(folder: Path) -> list[Path]:
    """Redraw the table and the figures from the files of scores and settings alone; return them."""
    scores = pd.read_csv(folder / SCORES_FILE)
    facts = json.loads((folder / META_FILE).read_text())
    table = level_table(scores)
    write_atomic(folder / TABLE_FILE, [table.to_csv(index=False).encode()])
    files = [folder / TABLE_FILE]
    if table["model"].nunique() == 1:
        what = "Accuracy" if "top1" in table else primary_metric_named(facts["headline"]).words
        caption = _caption(facts, f"{what} lost at each scan group", f"n = {facts['num_images']} images")
        return [*files, *save_figure(draw_losses, table, folder, "losses", caption)]
    matrix = matrix_table(table, facts["headline"])
    words = primary_metric_named(facts["headline"]).words
    seeds = " or ".join(str(count) for count in sorted(set(matrix["n_seeds"])))
    n = "n = 1 seed" if seeds == "1" else f"n = {seeds} seeds each"
    caption = _caption(facts, f"{words} by training and test level", n)
    draw = partial(draw_matrix, metric_words=words)
    return [*files, *save_figure(draw, matrix, folder, "matrix", caption)]


def _caption(facts: Mapping[str, Any], shows: str, n: str) -> Caption:
    task = describe_task(facts["dataset"], facts["label"], facts["model"], facts["image_size_px"])
    return Caption(shows=shows, of=(task,), n=n, hardware=describe_hardware(facts), storage=NOT_TIMED)


def check_primary_metric(name: str) -> None:
    """Raise ConfigError unless evaluations have a column for this primary metric."""
    if name not in ("top1", "balanced_accuracy", "auc", *_PRIMARY_METRICS):
        raise ConfigError(
            f"task: evaluations have no column for its primary metric {name}; wanted task=classification, "
            "task=balanced, task=auc, task=multilabel or task=regression."
        )
