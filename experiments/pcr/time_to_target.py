"""Time to accuracy on throttled storage: epochs of runs that learned, times seconds per epoch of short ones.

What a model learns does not depend on how fast storage is, so epochs to the target come from runs without a
throttle, however long they take and whatever goes on beside them. What an epoch takes does not depend on how
much has been learned, so it comes from runs of a minute that had the machine to themselves
(`training.stop_after_s`, `training.exclusive`). Both kinds are joined by the setting that they share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from experiments.pcr.learning import GROUP_COLUMNS
from experiments.pcr.predicted_times import steady_images_per_s
from pcr_exp.analysis.frame import LEVEL, first_reached, has_policy, setting_key
from pcr_exp.analysis.intervals import CONFIDENCE
from pcr_exp.analysis.plan import bandwidth_images_per_s, images_per_s
from pcr_exp.analysis.reporting_rules import (
    NEVER,
    UNLIKE,
    distinct,
    facts_of,
    is_exclusive,
    may_say_seconds,
    may_say_time_to,
)
from pcr_exp.analysis.runs import Run
from pcr_exp.config.describe import group_number, scan_label
from pcr_exp.errors import RunError
from pcr_exp.system import MIB
from pcr_exp.training.task import headline_called


@dataclass(frozen=True, slots=True)
class LogMean:
    """A mean on a logarithmic scale, with what is known of its spread."""

    mean: float
    parts: tuple[tuple[float, int], ...]
    """Variance of the mean and degrees of freedom of everything it is made of; nothing of a lone value."""

    def times(self, other: LogMean, sign: int = 1) -> LogMean:
        """The product, or with `sign=-1` the ratio; both are measured apart from each other."""
        return LogMean(self.mean + sign * other.mean, (*self.parts, *other.parts))

    @property
    def interval(self) -> tuple[float, float, float]:
        """The geometric mean and its 95 % interval; NaN ends where nothing is known of its spread.

        Student's t, with the degrees of freedom of Welch and Satterthwaite.
        """
        middle = math.exp(self.mean)
        if not self.parts:
            return middle, NEVER, NEVER
        variance = sum(part for part, _ in self.parts)
        if variance == 0:
            return middle, middle, middle
        freedom = variance**2 / sum(part**2 / degrees for part, degrees in self.parts)
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(variance)
        return middle, math.exp(self.mean - half), math.exp(self.mean + half)


def log_mean(values: Iterable[float]) -> LogMean:
    """The mean of the logarithms of some values, at least one, and how sure it is."""
    logs = np.log(np.asarray(list(values), dtype=float))
    n = len(logs)
    return LogMean(float(logs.mean()), ((float(logs.var(ddof=1)) / n, n - 1),) if n > 1 else ())


OVERSHOT = "epochs times a one-minute measurement; whole runs overshot by 13 and 28 %"
"""What a projected time is worth, wherever one is shown: results/time_to_target has the whole runs."""

UNKNOWN = "whether it had the machine to itself is not known"

NO_TARGET = "no fair baseline, and so no target"

_LEARNING = ("epochs", "learning_rate", "optimizer", "momentum", "nesterov", "weight_decay", "schedule")

_LOOKING = ("eval_every_epochs", "eval_groups", "eval_split", "stop_after_s", "label_smoothing")

_SCHEDULE = ("lr_milestones", "lr_gamma", "warmup_epochs")

SAME_SPEED = (
    *(
        "scan",
        "seed",
        "storage",
        "task",
        "dataset.images_per_record",
        "loader.shuffle_records",
        "loader.lanes",
    ),
    *(f"training.{key}" for key in (*_LEARNING, *_LOOKING, *_SCHEDULE)),
)
"""Settings in which runs of one speed may differ: those of learning, and what is throttled or compared."""

PROJECTED_COLUMNS = [
    *(*GROUP_COLUMNS, "setting", *LEVEL, "bandwidth_mib_per_s", "headline", "target_score"),
    *("n", "num_reached", "eval_every_epochs", "epochs_mean", "epochs_min", "epochs_max"),
    *("n_timed", "epoch_s", "epoch_s_min", "epoch_s_max", "image_bytes", "free_images_per_s"),
    *("time_s", "time_s_low", "time_s_high", "speedup", "speedup_low", "speedup_high", "model_speedup"),
    *("no_time", "hardware"),
]


def read_targets(root: str | Path) -> dict[tuple[Any, ...], tuple[str, float]]:
    """(headline, target) by GROUP_COLUMNS, from all `fair_baseline.csv` below a folder.

    Raises:
        RunError: a table has no target, or two have different ones for the same.
    """
    found: dict[tuple[Any, ...], tuple[str, float]] = {}
    for path in sorted(Path(root).rglob("fair_baseline.csv")):
        table = pd.read_csv(path)
        column = next((name for name in table.columns if name.startswith("target_")), None)
        if column is None:
            raise RunError(
                f"{path} has no column of targets: wanted a table as experiments.figures makes it."
            )
        for row in table.drop_duplicates(GROUP_COLUMNS).to_dict("records"):
            key = tuple(row[name] for name in GROUP_COLUMNS)
            target = (str(row.get("headline", column.removeprefix("target_"))), float(row[column]))
            if found.setdefault(key, target) != target:
                raise RunError(f"{path}: the target of {key} is {target}, and {found[key]} in another table.")
    return found


def projected_times(
    learned: Sequence[Run], timed: Sequence[Run], targets: Mapping[tuple[Any, ...], tuple[str, float]]
) -> pd.DataFrame:
    """One row of PROJECTED_COLUMNS per setting, bandwidth and scan level that both kinds of runs have.

    * `epochs_*`: of the first evaluation at the target, over the `n` seeds; those are as fine as evaluations
      are frequent (`eval_every_epochs`).
    * `epoch_s`: training images over images/s after the first train row, over the `n_timed` short runs.
    * `time_s`, geometric means, with 95 % intervals over seeds and, where there are several, short runs.
    * `speedup`: the baseline's time over this level's, epochs paired by seed; `model_speedup`: the same with
      images/s = min(what the level trains from unlimited storage, bandwidth / bytes per image).
    * `no_time` says why there is no time: not every seed reached the target, or seconds may not be said.

    Args:
        learned: Runs with evaluations (`read_runs`).
        timed: Short ones (`read_timed_runs`): exclusive and throttled, or of unlimited storage.
        targets: As `read_targets` gives them.

    Raises:
        RunError: a short run has rows of one update alone.
    """
    epochs, speeds = _by_level(learned), _by_level(timed)
    rows = []
    for (setting, scan), runs in epochs.items():
        shorts = speeds.get((setting, scan), [])
        baseline = _Level(epochs.get((setting, "baseline"), []), speeds.get((setting, "baseline"), []))
        for bandwidth in sorted({found for run in shorts if (found := _bandwidth(run)) is not None}):
            level = _Level(runs, shorts)
            rows.append(_row(level, baseline, bandwidth, setting, targets))
    table = pd.DataFrame(rows, columns=PROJECTED_COLUMNS)
    table["_place"] = table["group"].where(table["encoding"] != "baseline", 0)
    order = [*GROUP_COLUMNS, "setting", "bandwidth_mib_per_s", "_place"]
    return table.sort_values(order).drop(columns="_place").reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class _Level:
    """The runs of a setting's scan level: those that learned, and those that were timed, at any bandwidth."""

    learned: list[Run]
    timed: list[Run]

    def at(self, bandwidth: float) -> list[Run]:
        return [run for run in self.timed if _bandwidth(run) == bandwidth]

    @property
    def free_images_per_s(self) -> float:
        """What is trained from unlimited storage by runs that had the machine to themselves; NaN: none."""
        free = [run for run in self.timed if _bandwidth(run) is None and is_exclusive(run)]
        return math.exp(log_mean(map(_images_per_s, free)).mean) if free else NEVER

    def epochs(self, target: float) -> dict[int, float]:
        """By seed, the epochs to the target; NaN where it was not reached."""
        reached = {run.manifest.seed: first_reached(run.rows, target) for run in self.learned}
        return {seed: NEVER if row is None else float(row["epoch"]) for seed, row in reached.items()}


def _row(
    level: _Level,
    baseline: _Level,
    bandwidth: float,
    setting: str,
    targets: Mapping[tuple[Any, ...], tuple[str, float]],
) -> dict[str, Any]:
    first, shorts = level.learned[0], level.at(bandwidth)
    of_group = {**_group_of(first), "setting": setting}
    headline, target = targets.get(tuple(_group_of(first).values()), (first.manifest.headline, NEVER))
    epochs = level.epochs(target)
    seconds = [_epoch_s(run) for run in shorts]
    may = not _no_seconds(shorts)
    row = {
        **of_group,
        "scan": scan_label(first.config["scan"], first.config.get("records")),
        "encoding": first.manifest.encoding,
        "group": NEVER
        if has_policy(first.config)
        else group_number(first.manifest.encoding, first.manifest.scan_group),
        "bandwidth_mib_per_s": bandwidth,
        "headline": headline,
        "target_score": target,
        "n": len(epochs),
        "num_reached": sum(not math.isnan(found) for found in epochs.values()),
        "eval_every_epochs": first.config["training"]["eval_every_epochs"],
        "epochs_mean": float(np.mean(list(epochs.values()))),
        "epochs_min": min(epochs.values()),
        "epochs_max": max(epochs.values()),
        "n_timed": len(shorts),
        "epoch_s": math.exp(log_mean(seconds).mean) if may else NEVER,
        "epoch_s_min": min(seconds) if may else NEVER,
        "epoch_s_max": max(seconds) if may else NEVER,
        "image_bytes": shorts[0].manifest.mean_prefix_bytes,
        "free_images_per_s": level.free_images_per_s,
        "no_time": _no_time(first, shorts, headline, target, epochs),
        "hardware": " / ".join(sorted({facts_of(run)["hardware"] for run in shorts})),
    }
    if not row["no_time"]:
        row |= _with_interval("time_s", log_mean(epochs.values()).times(log_mean(seconds)))
        row |= _speedups(level, baseline, bandwidth, target, headline)
    return row


def _speedups(
    level: _Level, baseline: _Level, bandwidth: float, target: float, headline: str
) -> dict[str, float]:
    theirs = baseline.at(bandwidth)
    ours, reference = level.epochs(target), baseline.epochs(target)
    timing = {run.manifest.timing_key for run in (*theirs, *level.at(bandwidth))}
    if not theirs or not reference or len(timing) > 1:
        return {}
    if _no_time(baseline.learned[0], theirs, headline, target, reference):
        return {}
    paired = [reference[seed] / ours[seed] for seed in sorted(ours.keys() & reference.keys())]
    if not paired:
        return {}
    fewer = log_mean(paired)
    faster = log_mean(map(_epoch_s, theirs)).times(log_mean(map(_epoch_s, level.at(bandwidth))), -1)
    found = _with_interval("speedup", fewer.times(faster))
    rates = [
        modelled_images_per_s(
            which.free_images_per_s, bandwidth, which.at(bandwidth)[0].manifest.mean_prefix_bytes or NEVER
        )
        for which in (level, baseline)
        if not math.isnan(which.free_images_per_s)
    ]
    if len(rates) == 2:
        found["model_speedup"] = math.exp(fewer.mean) * rates[0] / rates[1]
    return found


def modelled_images_per_s(free_images_per_s: float, bandwidth_mib_per_s: float, image_bytes: float) -> float:
    """min(X, W / E[s]): what storage or, without a limit, the rest of training allows."""
    limits = {
        "compute": free_images_per_s,
        "bandwidth": bandwidth_images_per_s(bandwidth_mib_per_s * MIB, image_bytes),
    }
    return images_per_s(limits)[0]


def _no_time(
    learned: Run, shorts: Sequence[Run], headline: str, target: float, epochs: Mapping[int, float]
) -> str:
    manifest = learned.manifest
    if math.isnan(target):
        return NO_TARGET
    if headline != manifest.headline:
        words = headline_called(headline).words
        return f"the target is of {words}, and runs are judged by {headline_called(manifest.headline).words}"
    if no_target := may_say_time_to(target, manifest.majority_share, manifest.num_classes, headline):
        return no_target
    reached = sum(not math.isnan(found) for found in epochs.values())
    if reached < len(epochs):
        return f"reached by {reached} of {len(epochs)} seeds"
    return _no_seconds(shorts)


def _no_seconds(shorts: Sequence[Run]) -> str:
    unknown = [UNKNOWN for run in shorts if is_exclusive(run) is None]
    reasons = distinct([*map(may_say_seconds, shorts), *unknown])
    if reasons:
        return reasons[0]
    return UNLIKE if len({run.manifest.timing_key for run in shorts}) > 1 else ""


def _by_level(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        key = (setting_key(run, SAME_SPEED), scan_label(run.config["scan"], run.config.get("records")))
        found.setdefault(key, []).append(run)
    return found


def _group_of(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    values = (run.dataset, manifest.label, manifest.model, run.config["training"]["image_size"])
    return dict(zip(GROUP_COLUMNS, values, strict=True))


def _bandwidth(run: Run) -> float | None:
    bandwidth = run.config["storage"]["bandwidth_mib_per_s"]
    return None if bandwidth is None else float(bandwidth)


def _images_per_s(run: Run) -> float:
    if len({row["step"] for row in run.rows}) < 2:
        raise RunError(
            f"{run.manifest.run_id}: it has rows of one update alone, and so no speed. Wanted several: "
            "make it with training.log_every_steps=1, or a longer training.stop_after_s."
        )
    return steady_images_per_s(run.rows)


def _epoch_s(run: Run) -> float:
    assert run.manifest.num_train is not None  # known once training began
    return run.manifest.num_train / _images_per_s(run)


def _with_interval(name: str, estimate: LogMean) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), estimate.interval, strict=True))
