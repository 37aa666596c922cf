"""Tables of a `tolerance` measurement (losses, answers and bytes), and its two figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pcr_exp.analysis.figure import (
    footer,
    named_line,
    new_figure,
    note,
    panel_title,
    panels,
    points_axis,
    same_limits,
    ticks_in_bytes,
)
from pcr_exp.analysis.frame import crops_of, describe_ms_ssim
from pcr_exp.analysis.marks import group_legend
from pcr_exp.analysis.plan import bandwidth_images_per_s
from pcr_exp.analysis.style import INK, MUTED, color_in_script, group_marker, style
from pcr_exp.analysis.tables import percent, task_title
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.measuring.tolerance.answer import TOLERATED, deployed, loss_matrix
from pcr_exp.measuring.tolerance.classifier import Predictions, Targets
from pcr_exp.system import MIB
from pcr_exp.training.task import primary_metric_named

ORIGINAL = "original"


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The facts of a measurement that a page needs."""

    dataset: str
    label: str
    headline: str
    model: str
    image_size: int
    groups: Sequence[int]
    num_classes: int
    num_images: int
    num_clusters: int
    """Groups of images that folds never split, and that the bootstrap draws as a whole."""
    num_rejected: int
    majority_share: float | None
    margin: float
    num_folds: int
    num_resamples: int
    seed: int
    storage: Mapping[str, Any]
    """Plain settings of the storage that the answer is for."""
    images_per_record: int
    num_train_images: int
    """Images of the training split, that is, of one epoch."""
    decode: str = "unsmoothed"
    """As `loader.decode`; older measurements that do not record it used this mode."""
    scans: str = "default"
    """The scan script, named by its option of `records.scans`."""

    @property
    def chance_level(self) -> float:
        """The chance level: the primary metric of a model that has learned nothing; 0 if unknown."""
        return primary_metric_named(self.headline).guessed(self.majority_share, self.num_classes) or 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows of a measurement: one entry per image."""

    facts: Facts
    predictions: Predictions
    labels: Targets
    clusters: NDArray[np.int64]
    group_bytes: NDArray[np.int64]
    """[groups, images]."""
    original_bytes: NDArray[np.int64]
    ms_ssim: NDArray[np.float32] | None = None
    """[groups, some of the images]: crops against those of the last group; None if not measured."""
    hardware: str = "hardware not recorded"
    """Description of the hardware; for a measurement on disk, as its JSON file has it."""
    ids: Sequence[str] | None = None
    """Names of the images; None for older measurements, which did not save them."""

    @property
    def has_classes(self) -> bool:
        """Whether labels are class indexes; multi-label and regression targets are scored by outputs."""
        return self.labels.dtype.kind != "f"


def similarity_name(facts: Facts) -> str:
    """Return the name of the MS-SSIM values: `MS-SSIM (crops of 128 px)`."""
    return describe_ms_ssim([crops_of(facts.image_size)])


def matrix_of(measured: Measured) -> pd.DataFrame:
    """Return the losses of every pair of groups; see `pcr_exp.measuring.tolerance.answer.loss_matrix`."""
    facts = measured.facts
    return loss_matrix(
        measured.predictions,
        measured.labels,
        measured.clusters,
        facts.groups,
        headline=facts.headline,
        num_resamples=facts.num_resamples,
        seed=facts.seed,
    )


def bytes_table(measured: Measured) -> pd.DataFrame:
    """Return one row per group, and one for the original files (`original`).

    The columns are `group`; `image_bytes`, a mean; `share` of the original's bytes; `epoch_mib` of the
    training split; and `epoch_s`, the seconds in which the storage delivers an epoch, NaN if it has no limit.
    If MS-SSIM was measured, `ms_ssim` is its mean over crops of `image_size`, which differs from that of
    whole images. It is NaN for the original files.
    """
    facts = measured.facts
    means = {str(group): row.mean() for group, row in zip(facts.groups, measured.group_bytes, strict=True)}
    means[ORIGINAL] = measured.original_bytes.mean()
    table = pd.DataFrame(
        {
            "group": name,
            "image_bytes": mean,
            "share": mean / means[ORIGINAL],
            "epoch_mib": mean * facts.num_train_images / MIB,
            "epoch_s": epoch_s(facts, mean),
        }
        for name, mean in means.items()
    )
    if measured.ms_ssim is not None:
        table["ms_ssim"] = [*measured.ms_ssim.mean(axis=1), math.nan]
    return table


def epoch_s(facts: Facts, image_bytes: float) -> float:
    """Return the seconds per epoch that storage alone takes: bytes over bandwidth, plus a seek per record."""
    known = {key: facts.storage[key] for key in ("name", "bandwidth_mib_per_s", "seek_ms")}
    storage = StorageConfig(**known)
    if storage.bandwidth_mib_per_s is None:
        return math.nan
    seek_s = storage.seek_ms / 1e3 / facts.images_per_record
    rate = bandwidth_images_per_s(storage.bandwidth_mib_per_s * MIB, image_bytes, seek_s_per_image=seek_s)
    return facts.num_train_images / rate


def answers_table(matrix: pd.DataFrame, sizes: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """Return one row per deployment and group: the matrix's columns, `verdict`, and those of `bytes_table`.

    `lost_share` is the loss as a share of the largest possible loss, from all scans down to chance level.
    """
    rows = pd.concat([deployed(matrix, deployment, facts.margin) for deployment in DEPLOYMENTS])
    whole = float(rows.loc[rows["train_group"] == max(facts.groups), "score"].iloc[0])
    sizes = sizes[sizes["group"] != ORIGINAL].assign(train_group=lambda frame: frame["group"].astype(int))
    to_lose = whole - facts.chance_level
    rows = rows.assign(lost_share=rows["loss"] / to_lose if to_lose > 0 else math.nan)
    return rows.merge(sizes.drop(columns="group"), on="train_group")


WORDS = {"full": "used at all scans", "same": "used at the group trained on"}
MARKED = (1, 2, 5)
_CELL_IN, _AROUND_IN = 0.8, 1.9
"""Width in inches of a cell with an interval, and of everything around the cells."""


def points(share: float) -> str:
    """Format a share in points: 0.01 -> `1 point`."""
    return f"{100 * share:g} point{'' if share == 0.01 else 's'}"


def title_of(facts: Facts) -> str:
    """Return the title: dataset, label and model."""
    return task_title(facts.dataset, facts.label, facts.model)


def subtitle_of(facts: Facts) -> str:
    """Describe how the losses were measured."""
    script = "" if facts.scans == "default" else f"scan script {facts.scans}; "
    return script + (
        f"frozen features at {facts.image_size} px, linear classifier; n = {facts.num_images:,} images, "
        f"{facts.num_folds} folds; 95 % intervals"
    )


def draw_matrix(matrix: pd.DataFrame, facts: Facts) -> Figure:
    """Draw the points lost against all scans, by training group (rows) and group of use (columns).

    The ends of the 95 % interval are below each value.
    """
    groups = list(facts.groups)
    names = ["loss", "loss_low", "loss_high"]
    pairs = 100 * matrix.pivot_table(index="train_group", columns="test_group", values=names)
    values, lows, highs = (pairs[name].loc[groups, groups].to_numpy() for name in names)
    with style():
        figure = new_figure(_AROUND_IN + _CELL_IN * len(groups), _AROUND_IN + 0.72 * _CELL_IN * len(groups))
        ax = figure.subplots()
        reach = max(1.0, float(np.abs(values).max()))
        image = ax.imshow(values, cmap="BrBG_r", vmin=-reach, vmax=reach, aspect="auto")
        for i, j in np.ndindex(values.shape):
            color = "white" if abs(values[i, j]) > 0.6 * reach else INK
            look = {"ha": "center", "va": "center", "color": color}
            note(ax, f"{values[i, j]:.1f}", (j, i), (0, 5), fontsize=8, **look)
            if lows[i, j] < highs[i, j]:
                note(ax, f"{lows[i, j]:.1f} to {highs[i, j]:.1f}", (j, i), (0, -6), fontsize=6, **look)
        ax.set_xticks(range(len(groups)), [str(group) for group in groups])
        ax.set_yticks(range(len(groups)), [str(group) for group in groups])
        ax.grid(visible=False)
        ax.set_xlabel("used at scan group")
        ax.set_ylabel("trained at scan group")
        bar = figure.colorbar(image, ax=ax, shrink=0.8)
        bar.set_label(f"points of {primary_metric_named(facts.headline).words} lost")
        panel_title(ax, title_of(facts), f"{subtitle_of(facts)} below")
    return figure


def draw_curves(answers: pd.DataFrame, facts: Facts) -> Figure:
    """Draw points against all scans over bytes per image, one panel per deployment.

    Bars are paired 95 % intervals, so a group is sufficient if its bar lies above the line of the margin. One
    point near 0 stays visible however many points the first groups lose (`points_axis`).
    """
    with style():
        figure, axes = panels(len(WORDS))
        for ax, (deployment, words) in zip(axes, WORDS.items(), strict=True):
            _draw_curve(ax, answers[answers["deployment"] == deployment], facts)
            panel_title(
                ax,
                f"Trained at a group, {words}",
                f"{subtitle_of(facts)} of the difference to all scans; filled: within the margin",
            )
        same_limits(axes, [""] * len(axes))
        for ax in axes:
            points_axis(ax, "y")
        footer(figure, _describe_score(answers, facts))
    return figure


def _describe_score(answers: pd.DataFrame, facts: Facts) -> str:
    """Describe the score at all scans, which differences refer to, and the chance level."""
    whole = answers.loc[answers["train_group"] == max(facts.groups), "score"].iloc[0]
    words = primary_metric_named(facts.headline).words
    return f"{words} at all scans {percent(whole)}, guessing {percent(facts.chance_level)}"


def _draw_curve(ax: Axes, rows: pd.DataFrame, facts: Facts) -> None:
    highest = max(facts.groups)
    ax.set_xscale("log")
    ax.plot(rows["image_bytes"], -100 * rows["loss"], color=MUTED, linewidth=1, zorder=2)
    for row in rows.to_dict("records"):
        group, place = row["train_group"], row["image_bytes"]
        color = color_in_script(group, facts.scans)
        ends = (-100 * row["loss_high"], -100 * row["loss_low"])
        ax.vlines(place, *ends, color=color, linewidth=2.2, alpha=0.6)
        fill = color if row["verdict"] == TOLERATED else "white"
        ax.plot(place, -100 * row["loss"], group_marker(group), color=color, markerfacecolor=fill, zorder=4)
    ax.axhline(0, color=INK, linewidth=0.8, zorder=1)
    named_line(ax, -100 * facts.margin, f"- {points(facts.margin)}", fontsize=7)
    group_legend(ax, [group for group in facts.groups if group in MARKED or group == highest], facts.scans)
    ticks_in_bytes(ax.xaxis, float(rows["image_bytes"].min()) / 1.1, float(rows["image_bytes"].max()) * 1.1)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel(f"points of {primary_metric_named(facts.headline).words}\nagainst all scans")
