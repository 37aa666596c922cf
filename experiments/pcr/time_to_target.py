"""Time to accuracy on throttled storage: epochs from runs that learned, times epoch seconds from short runs.

The speed of storage does not change what a model learns, so runs without a throttle give the epochs to
the target, whatever else the machine does meanwhile. The time of an epoch does not depend on what has been
learned, so one-minute runs that had the machine to themselves give it (`training.stop_after_s`,
`training.exclusive`). The two kinds of runs are joined by their common setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.pcr.learning import GROUP_COLUMNS
from experiments.pcr.model_validation import steady_images_per_s
from pcr_exp.analysis.frame import LEVEL, by_level, first_reached, setting_keys
from pcr_exp.analysis.intervals import half_of
from pcr_exp.analysis.plan import roofline_images_per_s
from pcr_exp.analysis.reporting_rules import (
    NAN,
    UNLIKE,
    all_hardware,
    distinct,
    time_to_excluded_because,
)
from pcr_exp.analysis.statistics import repeat_of
from pcr_exp.errors import RunError
from pcr_exp.system import MIB
from pcr_exp.training.task import primary_metric_named


@dataclass(frozen=True, slots=True)
class LogMean:
    """A mean on a logarithmic scale, with its uncertainty."""

    mean: float
    parts: tuple[tuple[float, int], ...]
    """Variance of the mean and degrees of freedom for each of its factors; empty for a single value."""

    def times(self, other: LogMean, sign: int = 1) -> LogMean:
        """Return the product, or the ratio with `sign=-1`. The two must be measured independently."""
        return LogMean(self.mean + sign * other.mean, (*self.parts, *other.parts))

    @property
    def interval(self) -> tuple[float, float, float]:
        """The geometric mean and its 95 % interval; NaN ends if the spread is unknown.

        Student's t, with Welch-Satterthwaite degrees of freedom.
        """
        middle = math.exp(self.mean)
        if not self.parts:
            return middle, NAN, NAN
        variance = sum(part for part, _ in self.parts)
        if variance == 0:
            return middle, middle, middle
        freedom = variance**2 / sum(part**2 / degrees for part, degrees in self.parts)
        half = float(half_of(math.sqrt(variance), freedom))
        return middle, math.exp(self.mean - half), math.exp(self.mean + half)


def log_mean(values: Iterable[float]) -> LogMean:
    """Return the mean of the logarithms of one or more values, with its uncertainty."""
    logs = np.log(np.asarray(list(values), dtype=float))
    n = len(logs)
    return LogMean(float(logs.mean()), ((float(logs.var(ddof=1)) / n, n - 1),) if n > 1 else ())


OVERSHOT = "epochs times a one-minute measurement; whole runs overshot by 13 and 28 %"
"""Caveat that is shown with every projected time; results/time_to_target has the whole runs."""

UNKNOWN = "whether it had the machine to itself is not known"

NO_TARGET = "no fair baseline, and so no target"

_LEARNING = ("epochs", "learning_rate", "optimizer", "momentum", "nesterov", "weight_decay", "schedule")

_EVALUATING = ("eval_every_epochs", "eval_groups", "eval_split", "stop_after_s", "label_smoothing")

_SCHEDULE = ("lr_milestones", "lr_gamma", "warmup_epochs")

SAME_SPEED = (
    *("scan", "seed", "storage", "task"),
    *("dataset.images_per_record", "loader.shuffle_records", "loader.lanes"),
    *(f"training.{key}" for key in (*_LEARNING, *_EVALUATING, *_SCHEDULE)),
)
"""Settings in which runs of equal speed may differ: learning, and what is throttled or compared."""

PROJECTED_COLUMNS = [
    *(*GROUP_COLUMNS, "setting", *LEVEL, "bandwidth_mib_per_s", "headline", "target_score"),
    *("n", "num_reached", "eval_every_epochs", "epochs_mean", "epochs_min", "epochs_max"),
    *("n_timed", "epoch_s", "epoch_s_min", "epoch_s_max", "image_bytes", "free_images_per_s"),
    *("time_s", "time_s_low", "time_s_high", "speedup", "speedup_low", "speedup_high", "model_speedup"),
    *("no_time", "hardware"),
]


def read_targets(root: str | Path) -> dict[tuple[Any, ...], tuple[str, float]]:
    """Read (headline, target) by GROUP_COLUMNS from all `fair_baseline.csv` below a folder.

    Raises:
        RunError: a table has no target, or the targets of one key differ.
    """
    found: dict[tuple[Any, ...], tuple[str, float]] = {}
    for path in sorted(Path(root).rglob("fair_baseline.csv")):
        table = pd.read_csv(path)
        column = next((name for name in table.columns if name.startswith("target_")), None)
        if column is None:
            raise RunError(
                f"{path} has no column of targets: wanted a table as experiments.figures makes it."
            )
        for row in table.drop_duplicates([*GROUP_COLUMNS, column]).to_dict("records"):
            key = tuple(row[name] for name in GROUP_COLUMNS)
            target = (str(row.get("headline", column.removeprefix("target_"))), float(row[column]))
            if found.setdefault(key, target) != target:
                raise RunError(
                    f"{path}: the target of {key} is {target}, and {found[key]} in another row or table."
                )
    return found


def projected_times(
    learned: pd.DataFrame, timed: pd.DataFrame, targets: Mapping[tuple[Any, ...], tuple[str, float]]
) -> pd.DataFrame:
    """Return a row of PROJECTED_COLUMNS per setting, bandwidth and scan level that both kinds of runs have.

    * `epochs_*`: of the first evaluation at the target, over the `n` seeds. Their resolution is the interval
      between evaluations (`eval_every_epochs`).
    * `epoch_s`: training images over images/s after the first train row, over the `n_timed` short runs.
    * `time_s`: geometric means, with 95 % intervals over seeds and, if there are several, short runs.
    * `speedup`: the baseline's time over this level's, epochs paired by seed. `model_speedup`: the same with
      images/s = min(the level's rate from unlimited storage, bandwidth / bytes per image).
    * `no_time`: why there is no time, such as a seed that missed the target or excluded timing.

    Args:
        learned: `run_frame` of runs with evaluations (`read_runs`).
        timed: The same of short runs (`read_timed_runs`): exclusive and throttled, or of unlimited storage.
        targets: From `read_targets`.

    Raises:
        RunError: all rows of a short run are of one update; or trainings that would be compared differ in
            their learning, such as in epochs.
    """
    _require_one_learning(learned)
    epochs, speeds = _by_level(learned), _by_level(timed)
    rows = []
    for (setting, scan), runs in epochs.items():
        level = _Level(runs, speeds.get((setting, scan), timed.head(0)))
        baseline = _Level(*(levels.get((setting, "baseline"), timed.head(0)) for levels in (epochs, speeds)))
        for bandwidth in sorted(level.timed["bandwidth_mib_per_s"].dropna().unique()):
            rows.append(_row(level, baseline, bandwidth, setting, targets))
    table = pd.DataFrame(rows, columns=PROJECTED_COLUMNS)
    return by_level(table, [*GROUP_COLUMNS, "setting", "bandwidth_mib_per_s"])


@dataclass(frozen=True, slots=True)
class _Level:
    """The runs of a setting's scan level: those that learned, and those that were timed, by bandwidth."""

    learned: pd.DataFrame
    timed: pd.DataFrame

    def at(self, bandwidth: float) -> pd.DataFrame:
        return self.timed[self.timed["bandwidth_mib_per_s"] == bandwidth]

    @property
    def free_images_per_s(self) -> float:
        """Images/s from unlimited storage, of runs with the machine to themselves; NaN if there are none."""
        free = self.timed[self.timed["bandwidth_mib_per_s"].isna() & (self.timed["exclusive"] == True)]  # noqa: E712
        return math.exp(log_mean(_images_per_s(free)).mean) if len(free) else NAN

    def epochs(self, target: float) -> dict[tuple[Any, ...], float]:
        """Return the epochs to the target by seed (and fold); NaN if it was not reached."""
        repeats = self.learned[repeat_of(self.learned)].itertuples(index=False, name=None)
        reached = {
            repeat: first_reached(rows, target)
            for repeat, rows in zip(repeats, self.learned["rows"], strict=True)
        }
        return {repeat: NAN if row is None else float(row["epoch"]) for repeat, row in reached.items()}


def _row(
    level: _Level,
    baseline: _Level,
    bandwidth: float,
    setting: str,
    targets: Mapping[tuple[Any, ...], tuple[str, float]],
) -> dict[str, Any]:
    first, shorts = level.learned.iloc[0], level.at(bandwidth)
    group = {"image_size_px": first["image_px"], **first[["dataset", "label", "model"]]}
    headline, target = targets.get(tuple(group[key] for key in GROUP_COLUMNS), (first["headline"], NAN))
    epochs = level.epochs(target)
    seconds = _epoch_s(shorts)
    may = not _timing_excluded_because(shorts)
    row = {
        **group,
        **first[LEVEL],
        "setting": setting,
        "bandwidth_mib_per_s": bandwidth,
        "headline": headline,
        "target_score": target,
        "n": len(epochs),
        "num_reached": sum(not math.isnan(found) for found in epochs.values()),
        "eval_every_epochs": first["config"]["training"]["eval_every_epochs"],
        "epochs_mean": float(np.mean(list(epochs.values()))),
        "epochs_min": min(epochs.values()),
        "epochs_max": max(epochs.values()),
        "n_timed": len(shorts),
        "epoch_s": math.exp(log_mean(seconds).mean) if may else NAN,
        "epoch_s_min": min(seconds) if may else NAN,
        "epoch_s_max": max(seconds) if may else NAN,
        "image_bytes": shorts["mean_image_bytes"].iloc[0],
        "free_images_per_s": level.free_images_per_s,
        "no_time": _no_time(first, shorts, headline, target, epochs),
        "hardware": all_hardware(shorts),
    }
    if not row["no_time"]:
        row |= _with_interval("time_s", log_mean(epochs.values()), log_mean(seconds))
        row |= _speedups(level, baseline, bandwidth, target, headline)
    return row


def _speedups(
    level: _Level, baseline: _Level, bandwidth: float, target: float, headline: str
) -> dict[str, float]:
    theirs = baseline.at(bandwidth)
    ours, reference = level.epochs(target), baseline.epochs(target)
    timing = {*theirs["timing"], *level.at(bandwidth)["timing"]}
    if theirs.empty or not reference or len(timing) > 1:
        return {}
    if _no_time(baseline.learned.iloc[0], theirs, headline, target, reference):
        return {}
    paired = [reference[seed] / ours[seed] for seed in sorted(ours.keys() & reference.keys())]
    if not paired:
        return {}
    fewer = log_mean(paired)
    faster = log_mean(_epoch_s(theirs)).times(log_mean(_epoch_s(level.at(bandwidth))), -1)
    found = _with_interval("speedup", fewer, faster)
    rates = [
        roofline_images_per_s(
            which.at(bandwidth)["mean_image_bytes"].iloc[0],
            bandwidth_bytes_per_s=bandwidth * MIB,
            compute_images_per_s=which.free_images_per_s,
        )
        for which in (level, baseline)
        if not math.isnan(which.free_images_per_s)
    ]
    if len(rates) == 2:
        found["model_speedup"] = math.exp(fewer.mean) * rates[0] / rates[1]
    return found


def _no_time(
    learned: pd.Series,
    shorts: pd.DataFrame,
    headline: str,
    target: float,
    epochs: Mapping[tuple[Any, ...], float],
) -> str:
    if math.isnan(target):
        return NO_TARGET
    if headline != learned["headline"]:
        wanted, given = (primary_metric_named(name).words for name in (headline, learned["headline"]))
        return f"the target is of {wanted}, and runs are judged by {given}"
    if target_excluded_because := time_to_excluded_because(
        target, learned["majority_share"], learned["num_classes"], headline
    ):
        return target_excluded_because
    reached = sum(not math.isnan(found) for found in epochs.values())
    if reached < len(epochs):
        return f"reached by {reached} of {len(epochs)} seeds"
    return _timing_excluded_because(shorts)


def _timing_excluded_because(shorts: pd.DataFrame) -> str:
    unknown = [UNKNOWN for exclusive in shorts["exclusive"] if exclusive is None]
    reasons = distinct([*shorts["timing_excluded_because"], *unknown])
    if reasons:
        return reasons[0]
    return UNLIKE if shorts["timing"].nunique() > 1 else ""


def _by_level(runs: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    same = runs.assign(setting=setting_keys(runs, SAME_SPEED))
    return {(str(setting), str(scan)): alike for (setting, scan), alike in same.groupby(["setting", "scan"])}


def _require_one_learning(runs: pd.DataFrame) -> None:
    """Raise RunError if trainings of one speed differ in learning: their epochs to the target say nothing."""
    evaluating = (f"training.{key}" for key in _EVALUATING if key != "label_smoothing")
    learning = setting_keys(runs, ("scan", "seed", "storage", *evaluating))
    keys = runs.assign(speed=setting_keys(runs, SAME_SPEED), learning=learning)
    alike = keys.drop_duplicates(["speed", "learning"])
    if len(twice := alike[alike.duplicated("speed", keep=False)]):
        raise RunError(
            f"{', '.join(twice['run_id'].head(2))}: these trainings differ in settings of learning, such as "
            "epochs, so their epochs to the target cannot be compared. Give each kind a folder of its own."
        )


def _images_per_s(runs: pd.DataFrame) -> list[float]:
    for run_id, rows in zip(runs["run_id"], runs["rows"], strict=True):
        if len({row["step"] for row in rows}) < 2:
            raise RunError(
                f"{run_id}: it has rows of one update alone, and so no speed. Wanted several: "
                "make it with training.log_every_steps=1, or a longer training.stop_after_s."
            )
    return list(map(steady_images_per_s, runs["rows"]))


def _epoch_s(runs: pd.DataFrame) -> list[float]:
    return list(runs["num_train"] / _images_per_s(runs))


def _with_interval(name: str, epochs: LogMean, seconds: LogMean) -> dict[str, float]:
    """Return a value and its interval by column. A single seed, however often timed, has NaN ends."""
    middle, low, high = epochs.times(seconds).interval
    ends = (low, high) if epochs.parts else (NAN, NAN)
    return dict(zip((name, f"{name}_low", f"{name}_high"), (middle, *ends), strict=True))
