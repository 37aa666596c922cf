"""Runs as tables: one row per finished run, and one row per evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.permitted import (
    FACTS,
    facts_of,
)
from pcr_exp.analysis.core.read_runs import Run, read_runs
from pcr_exp.analysis.core.run_quality import has_policy, quality_of
from pcr_exp.analysis.core.statistics import NEVER
from pcr_exp.analysis.core.time_to_target import reached_of
from pcr_exp.config.labels import scan_label, storage_label
from pcr_exp.config.records import key_of
from pcr_exp.runs.identity import scientific_part
from pcr_exp.training.report import interval_rates

RUN_IDENTITY = [
    *("run_id", "dataset", "label", "model", "scan", "encoding", "group", "storage", "setting", "seed"),
    *("target_top1", "mean_image_bytes", *FACTS),
]
RUN_COLUMNS = [
    *RUN_IDENTITY,
    *("decode", "antialias", "ms_ssim", "num_scales", "ms_ssim_of"),
    *("bandwidth_mib_per_s", "latency_ms", "seek_ms", "requests_per_s"),
    *("images_per_s", "storage_mib_per_s", "wait_share"),
    *("final_top1", "best_top1", "epochs_to_target", "time_to_target_s"),
    *("epochs", "samples", "train_s", "wait_s", "probe_s", "record_bytes", "probe_bytes"),
    *("git_sha", "git_dirty"),
]


def load_runs(runs_root: str | Path, quality: pd.DataFrame | None = None) -> pd.DataFrame:
    """`runs_frame` of all finished runs below `runs_root`; `unfinished_runs` lists the others.

    Raises:
        RunError: as `read_runs`.
    """
    return runs_frame(read_runs(runs_root), quality)


def runs_frame(runs: Sequence[Run], quality: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per run: what it was, what it read, how fast, how good. Shares are 0..1.

    * `storage` is its label with its numbers; `setting` a key of everything that was configured but scan,
      seed and target: runs that share it differ in nothing else. `group` is NaN of a policy's run, and
      `mean_image_bytes` what it read, its probes included.
    * `final_top1`: of the finished model, which is what is reported; `best_top1`: of its best evaluation,
      chosen by the very images that it is measured on.
    * `ms_ssim`, `num_scales`, `ms_ssim_of`: as `quality_of` finds them; `quality` is `load_quality`'s.
    * Clocks and rates are as measured, over the whole run; where `no_seconds` says why, they are not this
      storage's, and neither a time to the target nor any other table shows them. `images_per_s` and
      `wait_share` are over training and waiting, `storage_mib_per_s` over the wall less evaluation.
    """
    return pd.DataFrame([_run_row(run, quality) for run in runs], columns=RUN_COLUMNS)


def eval_curves(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per evaluation: its run's identity (RUN_IDENTITY) and the evaluation row as logged."""
    curves = []
    for run in runs:
        identity = {key: value for key, value in _run_row(run, None).items() if key in RUN_IDENTITY}
        curves += [{**identity, **row} for row in run.eval_rows]
    return pd.DataFrame(curves) if curves else pd.DataFrame(columns=RUN_IDENTITY)


def accuracy_of(run: Run) -> dict[str, float]:
    """`final_top1` of the finished model, and `best_top1` of its best evaluation."""
    return {
        "final_top1": run.eval_rows[-1]["val_top1"],
        "best_top1": max(row["val_top1"] for row in run.eval_rows),
    }


def _run_row(run: Run, sets: pd.DataFrame | None) -> dict[str, Any]:
    manifest, config, last = run.manifest, run.config, run.rows[-1]
    storage = {key: config["storage"][key] for key in ("bandwidth_mib_per_s", "latency_ms", "requests_per_s")}
    storage["seek_ms"] = config["storage"].get("seek_ms", 0.0)  # came later
    quality = quality_of(run, sets)
    return {
        "run_id": manifest.run_id,
        "dataset": manifest.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "scan": scan_label(config["scan"]),
        "encoding": manifest.encoding,
        "group": NEVER if has_policy(config) else manifest.scan_group,
        "storage": storage_label(config["storage"]),
        "setting": setting_of(run),
        "seed": manifest.seed,
        "target_top1": manifest.target,
        "mean_image_bytes": _mean_image_bytes(run),
        **facts_of(run),
        "decode": config["loader"].get("decode", "libjpeg"),
        "antialias": config["loader"].get("antialias", False),
        "ms_ssim": quality.ms_ssim,
        "num_scales": quality.num_scales,
        "ms_ssim_of": quality.measured_on,
        **storage,
        **interval_rates({}, last),
        **accuracy_of(run),
        **reached_of(run),
        "epochs": last["epoch"],
        "samples": last["samples_seen"],
        **{key: last[key] for key in ("train_s", "wait_s", "probe_s", "record_bytes", "probe_bytes")},
        "git_sha": manifest.git_sha,
        "git_dirty": manifest.git_dirty,
    }


def _mean_image_bytes(run: Run) -> float | None:
    """Of a static level, as the index says; of a policy, what its run and its probes read per image."""
    last = run.rows[-1]
    if not has_policy(run.config) or last["samples_seen"] == 0:
        return run.manifest.mean_prefix_bytes
    return (last["record_bytes"] + last["probe_bytes"]) / last["samples_seen"]


def scientific_setting(run: Run) -> dict[str, Any]:
    """The scientific configuration of a run, with what it does not hold of newer runs: images, numerics."""
    images_key = getattr(run.manifest, "images_key", None)
    part: Mapping[str, Any] = scientific_part(run.config)
    if images_key is None:
        return dict(part)
    return {**part, "images": images_key, "numerics": getattr(run.manifest, "numerics", 1)}


def setting_of(run: Run) -> str:
    """Eight hex digits of a run's scientific configuration without scan, seed and target."""
    part = scientific_setting(run)
    part["dataset"] = {key: value for key, value in part["dataset"].items() if not key.startswith("target_")}
    return key_of({key: value for key, value in part.items() if key not in ("scan", "seed")})


GROUP_KEYS = ["dataset", "label", "model", "storage", "setting"]
"""What two runs must share to be compared; `setting` stands for everything else but scan and seed."""
