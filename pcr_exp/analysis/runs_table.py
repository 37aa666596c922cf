"""Runs as tables: one row per finished run, and one row per evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.read_runs import Run, read_runs
from pcr_exp.config.records import key_of
from pcr_exp.runs.identity import scientific_part
from pcr_exp.training.report import interval_rates

NEVER = float("nan")
_STATIC_KEYS = {"name", "encoding", "group"}

RUN_IDENTITY = [
    "run_id",
    "dataset",
    "label",
    "model",
    "scan",
    "encoding",
    "group",
    "storage",
    "setting",
    "seed",
    "target_top1",
    "mean_image_bytes",
]
RUN_COLUMNS = [
    *RUN_IDENTITY,
    "bandwidth_mib_per_s",
    "latency_ms",
    "requests_per_s",
    "images_per_s",
    "storage_mib_per_s",
    "wait_share",
    "best_top1",
    "final_top1",
    "time_to_target_s",
    "epochs",
    "samples",
    "train_s",
    "wait_s",
    "probe_s",
    "record_bytes",
    "git_sha",
    "git_dirty",
    "hardware",
]


def load_runs(runs_root: str | Path) -> pd.DataFrame:
    """`runs_frame` of all finished runs below `runs_root`; `unfinished_runs` lists the others.

    Raises:
        RunError: as `read_runs`.
    """
    return runs_frame(read_runs(runs_root))


def runs_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run: what it was, what it read, how fast, how good. Shares are 0..1.

    `setting` is a key of everything that was configured but scan, seed and target: runs that share it differ
    in nothing else. `group` is NaN of a policy's run, and `mean_image_bytes` what it read. Rates are over the
    whole run: `images_per_s` and `wait_share` over training and waiting for data, `storage_mib_per_s` over
    the wall less evaluation.
    """
    return pd.DataFrame([_run_row(run) for run in runs], columns=RUN_COLUMNS)


def eval_curves(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per evaluation: its run's identity (RUN_IDENTITY) and the evaluation row as logged."""
    curves = []
    for run in runs:
        identity = {key: value for key, value in _run_row(run).items() if key in RUN_IDENTITY}
        curves += [{**identity, **row} for row in run.eval_rows]
    return pd.DataFrame(curves) if curves else pd.DataFrame(columns=RUN_IDENTITY)


def time_to_accuracy(rows: Iterable[Mapping[str, Any]], target_top1: float) -> float:
    """train_s + wait_s + probe_s of the first eval row with val_top1 >= target_top1; NaN if there is none."""
    reached = (row for row in rows if row["kind"] == "eval" and row["val_top1"] >= target_top1)
    first = next(reached, None)
    return NEVER if first is None else first["train_s"] + first["wait_s"] + first["probe_s"]


def _run_row(run: Run) -> dict[str, Any]:
    manifest, config, last = run.manifest, run.config, run.rows[-1]
    storage = {key: config["storage"][key] for key in ("bandwidth_mib_per_s", "latency_ms", "requests_per_s")}
    return {
        "run_id": manifest.run_id,
        "dataset": manifest.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "scan": config["scan"]["name"],
        "encoding": manifest.encoding,
        "group": NEVER if has_policy(config) else manifest.scan_group,
        "storage": config["storage"]["name"],
        "setting": setting_of(config),
        "seed": manifest.seed,
        "target_top1": manifest.target_top1,
        "mean_image_bytes": _mean_image_bytes(run),
        **storage,
        **interval_rates({}, last),
        "best_top1": max(row["val_top1"] for row in run.eval_rows),
        "final_top1": run.eval_rows[-1]["val_top1"],
        "time_to_target_s": time_to_accuracy(run.rows, manifest.target_top1),
        "epochs": last["epoch"],
        "samples": last["samples_seen"],
        "train_s": last["train_s"],
        "wait_s": last["wait_s"],
        "probe_s": last["probe_s"],
        "record_bytes": last["record_bytes"],
        "git_sha": manifest.git_sha,
        "git_dirty": manifest.git_dirty,
        "hardware": f"{manifest.gpu or manifest.cpu}, {manifest.num_cores} cores",
    }


def has_policy(config: Mapping[str, Any]) -> bool:
    """Whether the run's scan group was chosen as it went: its scan has more keys than a static level's."""
    return not config["scan"].keys() <= _STATIC_KEYS


def _mean_image_bytes(run: Run) -> float | None:
    """Of a static level, as the index says; of a policy, what its run read per image."""
    last = run.rows[-1]
    if not has_policy(run.config) or last["samples_seen"] == 0:
        return run.manifest.mean_prefix_bytes
    return last["record_bytes"] / last["samples_seen"]


def setting_of(config: Mapping[str, Any]) -> str:
    """Eight hex digits of a run's scientific configuration without scan, seed and target."""
    part = scientific_part(config)
    part["dataset"] = {key: value for key, value in part["dataset"].items() if key != "target_top1"}
    return key_of({key: value for key, value in part.items() if key not in ("scan", "seed")})
