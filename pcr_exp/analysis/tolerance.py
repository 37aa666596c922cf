"""A measurement of `tolerance`: tables of losses, answers and bytes, and the two figures of them."""

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
from pcr_exp.analysis.frame import crops_of, ms_ssim_words
from pcr_exp.analysis.marks import group_legend
from pcr_exp.analysis.plan import bandwidth_images_per_s
from pcr_exp.analysis.style import INK, MUTED, color_in_script, group_marker, style
from pcr_exp.analysis.tables import percent, task_title
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.measuring.tolerance.answer import TOLERATED, deployed, loss_matrix
from pcr_exp.measuring.tolerance.classifier import Predictions, Targets
from pcr_exp.system import MIB
from pcr_exp.training.task import headline_called

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
    """Groups of images that are never on two sides of a fold, and that the bootstrap draws."""
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
    """Images of the training split, of which an epoch is made."""
    decode: str = "unsmoothed"
    """As `loader.decode`; measurements that do not say it were made with this one."""
    scans: str = "default"
    """The scan script, by the name of its option of `records.scans`."""

    @property
    def chance_level(self) -> float:
        """The chance level: the primary metric of a model that has learned nothing."""
        return headline_called(self.headline).guessed(self.majority_share, self.num_classes) or 0.0


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
    """[groups, some of the images]: of crops, against the last group's; None where nobody seen."""
    hardware: str = "hardware not recorded"
    """For people; of a measurement on disk, as its json says."""
    ids: Sequence[str] | None = None
    """The images by name; None: of a measurement from before they were saved."""

    @property
    def has_classes(self) -> bool:
        """Whether the label is one of several classes; sets and numbers are scored by the model's outputs."""
        return self.labels.dtype.kind != "f"


def similarity_name(facts: Facts) -> str:
    """`MS-SSIM (crops of 128 px)`."""
    return ms_ssim_words([crops_of(facts.image_size)])


def matrix_of(measured: Measured) -> pd.DataFrame:
    """Losses of every pair of groups; see `pcr_exp.measuring.tolerance.answer.loss_matrix`."""
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
    """One row per group, and one for the files as they were (`original`).

    Columns `group`, `image_bytes` (mean), `share` of the original's, `epoch_mib` of the training split,
    `epoch_s`: the seconds in which the storage can bring that, NaN if it has no limit; and where it was
    measured `ms_ssim`, the mean over crops of `image_size`, which is not that of whole images; NaN for the
    files themselves.
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
    """Seconds of an epoch that storage alone takes: bytes over bandwidth, and a seek for every record."""
    known = {key: facts.storage[key] for key in ("name", "bandwidth_mib_per_s", "seek_ms")}
    storage = StorageConfig(**known)
    if storage.bandwidth_mib_per_s is None:
        return math.nan
    seek_s = storage.seek_ms / 1e3 / facts.images_per_record
    rate = bandwidth_images_per_s(storage.bandwidth_mib_per_s * MIB, image_bytes, seek_s_per_image=seek_s)
    return facts.num_train_images / rate


def answers_table(matrix: pd.DataFrame, sizes: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """One row per deployment and group: the matrix's columns, `verdict`, and the columns of `bytes_table`.

    `lost_share`: the loss as a share of what there is to lose, from all scans down to guessing.
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
"""Width of a cell with an interval, and what lies around all of them."""


def points(share: float) -> str:
    """0.01 -> `1 point`."""
    return f"{100 * share:g} point{'' if share == 0.01 else 's'}"


def title_of(facts: Facts) -> str:
    """Data, task and network."""
    return task_title(facts.dataset, facts.label, facts.model)


def subtitle_of(facts: Facts) -> str:
    """How it was measured."""
    script = "" if facts.scans == "default" else f"scan script {facts.scans}; "
    return script + (
        f"frozen features at {facts.image_size} px, linear classifier; n = {facts.num_images:,} images, "
        f"{facts.num_folds} folds; 95 % intervals"
    )


def draw_matrix(matrix: pd.DataFrame, facts: Facts) -> Figure:
    """Points lost to all scans, by the group trained on (rows) and the group used at (columns).

    Below each the ends of its 95 % interval.
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
        bar.set_label(f"points of {headline_called(facts.headline).words} lost")
        panel_title(ax, title_of(facts), f"{subtitle_of(facts)} below")
    return figure


def draw_curves(answers: pd.DataFrame, facts: Facts) -> Figure:
    """Points against all scans over bytes per image, a panel for each way of using the model.

    Bars are paired 95 % intervals, so a group whose bar lies above the margin's line will do. The axis shows
    one point beside 0 however many the first groups lose (`points_axis`).
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
        footer(figure, _score_words(answers, facts))
    return figure


def _score_words(answers: pd.DataFrame, facts: Facts) -> str:
    """The score that the differences are to, and what guessing reaches."""
    whole = answers.loc[answers["train_group"] == max(facts.groups), "score"].iloc[0]
    words = headline_called(facts.headline).words
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
    ax.set_ylabel(f"points of {headline_called(facts.headline).words}\nagainst all scans")
