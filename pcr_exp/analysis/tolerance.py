"""A measurement of `tolerance`, and its tables: losses of every pair of groups, answers, bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pcr_exp.analysis.frame import crops_of, ms_ssim_words
from pcr_exp.analysis.plan import bandwidth_images_per_s
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.measuring.tolerance.answer import deployed, loss_matrix
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
