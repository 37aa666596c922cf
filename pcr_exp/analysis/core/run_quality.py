"""How much like the whole images those of a run's scan group are, as measured on its own images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.config.records import num_groups_of
from pcr_exp.config.scan import ScanConfig
from pcr_exp.runs.manifest import Manifest

WHOLE = "whole images"
BY_DEFINITION = "all scans"
"""Where nothing is measured: the baseline and the last scan group show all that there is."""
_STATIC_KEYS = set(ScanConfig.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class RunQuality:
    """Mean MS-SSIM of a run's scan group; NaN where these images were never measured as the run saw them."""

    ms_ssim: float = float("nan")
    num_scales: float = float("nan")
    """The fewest that MS-SSIM had for an image: small images allow fewer than five."""
    measured_on: str = ""
    """`crops_of` its training images, WHOLE or BY_DEFINITION; empty if it was not measured."""


def crops_of(side_px: int) -> str:
    """`crops of 128 px`: training crops, whose MS-SSIM is another than that of the whole images."""
    return f"crops of {side_px} px"


def ms_ssim_words(of: Iterable[str]) -> str:
    """`MS-SSIM (crops of 128 px)`: the name of a column or axis whose values are of this."""
    measured = sorted({words for words in of if words} - {BY_DEFINITION})
    return f"MS-SSIM ({' / '.join(measured)})" if measured else "MS-SSIM"


def quality_of(run: Run, sets: pd.DataFrame | None) -> RunQuality:
    """The quality of what a run trained on.

    First its own measurement (200 of its own transformed images). Else the measurement of its records in
    `sets` (`load_quality`), found by the records' fingerprint, decode mode and filter, never by a name:
    other images, or the same decoded otherwise, have another MS-SSIM. The baseline and the last scan group
    show all that there is: 1. A policy's run has no one quality.
    """
    loader = run.config["loader"]
    mode = {"decode": loader["decode"], "antialias": loader["antialias"]}
    if has_policy(run.config):
        return RunQuality()
    measured = run.manifest.quality
    own_crops = crops_of(run.config["training"]["image_size"])
    wanted = (mode["decode"], mode["antialias"], run.manifest.scan_group)
    own = [entry for entry in measured if (entry.decode, entry.antialias, entry.group) == wanted]
    last = num_groups_of(run.config.get("records", {}))
    if run.manifest.encoding == "baseline" or run.manifest.scan_group == last:
        scales = [entry.num_scales for entry in measured]
        return RunQuality(1.0, min(scales) if scales else float("nan"), BY_DEFINITION)
    if own:
        mean = own[0].ms_ssim_mean
        return RunQuality(float("nan") if mean is None else mean, own[0].num_scales, own_crops)
    return _of_set(run.manifest, mode, sets)


def has_policy(config: Mapping[str, Any]) -> bool:
    """Whether the run's scan group was chosen as it went: its scan has more keys than a static level's."""
    return not config["scan"].keys() <= _STATIC_KEYS


def _of_set(manifest: Manifest, mode: Mapping[str, Any], sets: pd.DataFrame | None) -> RunQuality:
    if sets is None or sets.empty:
        return RunQuality()
    fingerprints = [manifest.train_fingerprint, manifest.val_fingerprint]
    found = sets[
        sets["fingerprint"].isin([key for key in fingerprints if key])
        & (sets["group"] == manifest.scan_group)
        & (sets["decode"] == mode["decode"])
        & (sets["antialias"] == mode["antialias"])
    ]
    if found.empty:
        return RunQuality()
    return RunQuality(float(found["ms_ssim"].mean()), float(found["num_scales"].min()), WHOLE)
