"""Reporting rules: whether seconds, times to a target and speed-ups of a run may be shown.

Each rule returns the reason for an exclusion, as text for a footnote; empty if the number may be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.runs import Run
from pcr_exp.runs.manifest import Manifest
from pcr_exp.training.task import TOP1, primary_metric_named

NAN = float("nan")
"""A number that the reporting rules exclude, or that was not reached."""
FACTS = [
    "majority_share",
    "num_classes",
    "headline",
    "hardware",
    "timing",
    "timing_excluded_because",
    "target_excluded_because",
]
"""Columns that every table of runs has (`facts_of`)."""
UNLIMITED = "storage was not limited: seconds are the page cache's and this machine's, not a storage's"
MIXED = "its sessions ran on unlike hardware or settings"
NOT_EXCLUSIVE = "others took more than 5 % of the CPU meanwhile (exclusive_only=false shows them)"
OTHERS_AT_MOST = 0.05
"""CPU share that other processes may take while a run counts as having the machine to itself."""
_SHARING = {True: ", exclusive", False: ", shared with others", None: ""}
_OR = " / "
UNLIKE = "runs of unlike hardware or settings"


def timing_exclusion(run: Run) -> str:
    """Return why no seconds, rate or speed-up of a run may be shown; empty if they may.

    Three conditions must hold. A throttle that a reader can set limits the run: of the storage or, with
    several processes, of the network. The run had the machine to itself. All its sessions had one timing key.
    If rows lack the CPU share of other processes, it suffices that no other run was concurrent.
    """
    if not is_limited(run.config):
        return UNLIMITED
    if run.shared_machine:
        return run.shared_machine
    if run.exclusive_only and is_exclusive(run) is False:
        return NOT_EXCLUSIVE
    return MIXED if run.manifest.timing_is_mixed else ""


def time_to_excluded_because(
    target: float, majority_share: float | None, num_classes: int | None = None, headline: str = TOP1.name
) -> str:
    """Return why no time to a target may be shown; empty if it may, or if the chance level is unknown."""
    share = None if majority_share is None or pd.isna(majority_share) else majority_share
    metric = primary_metric_named(headline)
    guessed = metric.guessed(share, num_classes)
    if guessed is None or target > guessed:
        return ""
    if metric is TOP1:
        return (
            f"a target of {100 * target:g}% is reached by always saying the most frequent class "
            f"({100 * guessed:.1f}% of the validation images)"
        )
    return f"a target of {100 * target:g}% {metric.words} is reached by guessing ({100 * guessed:.1f}%)"


def speedup_excluded_because(runs: pd.DataFrame, reference: pd.DataFrame) -> str:
    """Return why no speed-up of `runs` over `reference` may be shown; empty if it may.

    Args:
        runs: Rows with `timing_excluded_because` (`timing_exclusion`) and `timing` (manifests' key).
        reference: The same columns for the runs to compare with.
    """
    if reference.empty:
        return "nothing to compare with"
    both = pd.concat([runs, reference])
    if reasons := distinct(both["timing_excluded_because"]):
        return reasons[0]
    return UNLIKE if both["timing"].nunique() > 1 else ""


def is_limited(config: Mapping[str, Any]) -> bool:
    """Return whether a throttle limits the storage, or the network between processes."""
    storage = config["storage"]
    limits = [storage.get(key) for key in ("bandwidth_mib_per_s", "latency_ms", "seek_ms", "requests_per_s")]
    if config.get("world_size", 1) > 1:
        limits += [config["network"].get(key) for key in ("bandwidth_mbit_per_s", "latency_ms")]
    return any(limits)


def others_cpu_share(rows: Iterable[Mapping[str, Any]]) -> float:
    """Return the CPU share, 0 to 1, that others took while rows were logged; NaN if no row records it.

    A row's share covers the time since the previous row that has one.
    """
    taken_s = known_s = since_s = 0.0
    for row in rows:
        share = row.get("others_cpu_share")
        if share is not None and not pd.isna(share):
            passed_s, since_s = row["wall_s"] - since_s, row["wall_s"]
            taken_s, known_s = taken_s + share * passed_s, known_s + passed_s
    return taken_s / known_s if known_s > 0 else NAN


def is_exclusive(run: Run) -> bool | None:
    """Return whether others took at most OTHERS_AT_MOST of the CPU during training; None if unknown."""
    share = others_cpu_share(run.rows)
    return None if pd.isna(share) else share <= OTHERS_AT_MOST


def hardware_of(manifest: Manifest) -> str:
    """Describe the processor and the number of cores of a run."""
    return f"{manifest.gpu or manifest.cpu}, {manifest.num_cores} cores"


def distinct(reasons: Iterable[str]) -> list[str]:
    """Return the distinct reasons that are not empty, in their order."""
    return list(dict.fromkeys(reason for reason in reasons if reason))


def all_hardware(rows: pd.DataFrame) -> str:
    """List the distinct machines of runs, or of summaries of them, in alphabetical order."""
    return _OR.join(sorted({machine for hardware in rows["hardware"] for machine in hardware.split(_OR)}))


def facts_of(run: Run) -> dict[str, Any]:
    """Return FACTS of a run: the chance level, the hardware, and what the reporting rules exclude."""
    manifest = run.manifest
    return {
        "majority_share": NAN if manifest.majority_share is None else manifest.majority_share,
        "num_classes": manifest.num_classes,
        "headline": manifest.headline,
        "hardware": hardware_of(manifest) + _SHARING[is_exclusive(run)],
        "timing": run.manifest.timing_key,
        "timing_excluded_because": timing_exclusion(run),
        "target_excluded_because": time_to_excluded_because(
            manifest.target, manifest.majority_share, manifest.num_classes, manifest.headline
        ),
    }
