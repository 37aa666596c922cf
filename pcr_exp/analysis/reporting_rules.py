"""Rules of reporting: whether seconds, times to a target and speed-ups of a run may be shown.

Each question is answered by the reason why not, in words for a footnote; an empty answer is a yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.runs import Run
from pcr_exp.runs.manifest import Manifest
from pcr_exp.training.task import TOP1, headline_called

NAN = float("nan")
"""A number that may not be said, or that was not reached."""
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
"""Share of the CPU that others may take while a run has the machine to itself."""
_SHARING = {True: ", exclusive", False: ", shared with others", None: ""}
_OR = " / "
UNLIKE = "runs of unlike hardware or settings"


def timing_exclusion(run: Run) -> str:
    """Why no seconds, rate or speed-up of a run may be shown; empty if they may.

    They may where something that a reader can set limits them (the throttle of storage or, of several
    processes, of the network), the run had the machine for itself, and all its sessions ran alike. That no
    other run of ours went on beside it is enough where rows do not say what others took of the CPU.
    """
    if not is_limited(run.config):
        return UNLIMITED
    if run.shared_machine:
        return run.shared_machine
    if run.exclusive_only and is_exclusive(run) is False:
        return NOT_EXCLUSIVE
    return MIXED if run.manifest.timing_is_mixed else ""


def may_say_time_to(
    target: float, majority_share: float | None, num_classes: int | None = None, headline: str = TOP1.name
) -> str:
    """Why no time to a target may be shown; empty if it may, or if what guessing reaches is not known."""
    share = None if majority_share is None or pd.isna(majority_share) else majority_share
    metric = headline_called(headline)
    guessed = metric.guessed(share, num_classes)
    if guessed is None or target > guessed:
        return ""
    if metric is TOP1:
        return (
            f"a target of {100 * target:g}% is reached by always saying the most frequent class "
            f"({100 * guessed:.1f}% of the validation images)"
        )
    return f"a target of {100 * target:g}% {metric.words} is reached by guessing ({100 * guessed:.1f}%)"


def may_say_speedup(runs: pd.DataFrame, reference: pd.DataFrame) -> str:
    """Why no speed-up of `runs` over `reference` may be shown; empty if it may.

    Args:
        runs: Rows with `timing_excluded_because` (`timing_exclusion`) and `timing` (manifests' key).
        reference: The same, of the runs that are compared with.
    """
    if reference.empty:
        return "nothing to compare with"
    both = pd.concat([runs, reference])
    if reasons := distinct(both["timing_excluded_because"]):
        return reasons[0]
    return UNLIKE if both["timing"].nunique() > 1 else ""


def is_limited(config: Mapping[str, Any]) -> bool:
    """Whether a throttle stands before the records, or between processes."""
    storage = config["storage"]
    limits = [storage.get(key) for key in ("bandwidth_mib_per_s", "latency_ms", "seek_ms", "requests_per_s")]
    if config.get("world_size", 1) > 1:
        limits += [config["network"].get(key) for key in ("bandwidth_mbit_per_s", "latency_ms")]
    return any(limits)


def others_cpu_share(rows: Iterable[Mapping[str, Any]]) -> float:
    """The share of the CPU that others took while rows were made, 0 to 1; NaN where no row says it.

    A row's share is of the time since the last row before it that has one.
    """
    taken_s = known_s = since_s = 0.0
    for row in rows:
        share = row.get("others_cpu_share")
        if share is not None and not pd.isna(share):
            passed_s, since_s = row["wall_s"] - since_s, row["wall_s"]
            taken_s, known_s = taken_s + share * passed_s, known_s + passed_s
    return taken_s / known_s if known_s > 0 else NAN


def is_exclusive(run: Run) -> bool | None:
    """Whether others took at most OTHERS_AT_MOST of the CPU while it trained; None: not known."""
    share = others_cpu_share(run.rows)
    return None if pd.isna(share) else share <= OTHERS_AT_MOST


def hardware_of(manifest: Manifest) -> str:
    """The processor of a run, for people."""
    return f"{manifest.gpu or manifest.cpu}, {manifest.num_cores} cores"


def distinct(reasons: Iterable[str]) -> list[str]:
    """The reasons that are not empty, each once, in their order."""
    return list(dict.fromkeys(reason for reason in reasons if reason))


def all_hardware(rows: pd.DataFrame) -> str:
    """The machines of runs, or of summaries of them: each once, in alphabetical order."""
    return _OR.join(sorted({machine for hardware in rows["hardware"] for machine in hardware.split(_OR)}))


def facts_of(run: Run) -> dict[str, Any]:
    """FACTS of a run: the level of guessing, what it ran on, and what may not be said of it."""
    manifest = run.manifest
    return {
        "majority_share": NAN if manifest.majority_share is None else manifest.majority_share,
        "num_classes": manifest.num_classes,
        "headline": manifest.headline,
        "hardware": hardware_of(manifest) + _SHARING[is_exclusive(run)],
        "timing": run.manifest.timing_key,
        "timing_excluded_because": timing_exclusion(run),
        "target_excluded_because": may_say_time_to(
            manifest.target, manifest.majority_share, manifest.num_classes, manifest.headline
        ),
    }
