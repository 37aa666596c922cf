"""The frame of runs: one row per finished run, or one per evaluation, with the quality of its images.

A room's table names its own columns; what every table says of a run is said here once (`shared_columns`).
Time to a target is derived here from rows, and never logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcr_exp.analysis.reporting_rules import FACTS, NEVER, facts_of
from pcr_exp.analysis.runs import Run, evaluations_at
from pcr_exp.analysis.tables import task_title
from pcr_exp.config.describe import group_number, scan_label, storage_label
from pcr_exp.config.records import num_groups_of, script_of_records
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.runs.identity import scientific_part
from pcr_exp.runs.manifest import Manifest
from pcr_exp.system.keys import key_of
from pcr_exp.training.columns import COLUMNS
from pcr_exp.training.report import interval_rates

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


SHARE = "bytes_share"
"""Column of tables of runs whose records have another scan script than libjpeg's."""

REACHED = ["epochs_to_target", "fresh_to_target", "bytes_to_target", "time_to_target_s"]
"""What a run took to its target (`reached_of`)."""


def seconds_of(row: Any) -> Any:
    """Seconds that count at a row, or at each row of a table: training, waiting for data, and probes.

    Evaluation is off the clock.
    """
    return row["train_s"] + row["wait_s"] + row["probe_s"]


def first_reached(rows: Iterable[Mapping[str, Any]], target_score: float) -> Mapping[str, Any] | None:
    """The first evaluation at full fidelity with val_score >= target_score."""
    evaluations = evaluations_at("full", rows)
    return next((row for row in evaluations if row["val_score"] >= target_score), None)


def reached_of(run: Run, no_target: str, no_seconds: str) -> dict[str, float]:
    """REACHED of a run: epochs, fresh images, bytes of records, and seconds.

    They are those of the first evaluation at the target; NaN where none reaches it, or where it may not be
    said.

    Args:
        run: A finished run.
        no_target: Why no time to the target may be said (`reporting_rules.facts_of`); empty if it may.
        no_seconds: Why no seconds may be said; empty if they may.
    """
    row = None if no_target else first_reached(run.rows, run.manifest.target)
    if row is None:
        return dict.fromkeys(REACHED, NEVER)
    seconds = NEVER if no_seconds else seconds_of(row)
    return dict(zip(REACHED, (row["epoch"], row["samples_seen"], row["record_bytes"], seconds), strict=True))


GROUP_KEYS = ["dataset", "label", "model", "storage", "setting"]
"""What two runs must share to be compared; `setting` stands for everything else but scan and seed."""

LEVEL = ["scan", "encoding", "group"]
"""A scan level: its label, and what it reads. `style.ScanLevel` draws by the latter two."""

SCAN_AND_SEED = ("scan", "seed")
"""What a setting does not stand for, unless a table says otherwise."""

RUN_IDENTITY = [
    *("run_id", "dataset", "label", "model", *LEVEL, "storage", "setting", "seed"),
    *("target_score", "mean_image_bytes", *FACTS),
]

RUN_COLUMNS = [
    *RUN_IDENTITY,
    *("decode", "antialias", "ms_ssim", "num_scales", "ms_ssim_of"),
    *("bandwidth_mib_per_s", "latency_ms", "seek_ms", "requests_per_s"),
    *("images_per_s", "storage_mib_per_s", "wait_share"),
    *("final_score", "best_score", "epochs_to_target", "time_to_target_s"),
    *("epochs", "samples", "train_s", "wait_s", "probe_s", "record_bytes", "probe_bytes"),
    *("git_sha", "git_dirty"),
]


def fold_of(run: Run) -> str:
    """`0 of 5`: the fold that validates; empty where there are none."""
    dataset = run.config["dataset"]
    return f"{dataset['fold']} of {dataset['num_folds']}" if dataset.get("num_folds") else ""


def setting_key(run: Run, less: Iterable[str] = SCAN_AND_SEED, keep: Iterable[str] = ()) -> str:
    """Eight hex digits of a run's scientific configuration without its target and what a table compares.

    Runs of one key, dataset, model and storage differ in nothing but `less`, and in the fold that validates.

    Args:
        run: A finished run.
        less: Groups (`echo`) and dotted keys (`training.epochs`) that are left out.
        keep: Dotted keys of groups in `less` that count all the same.
    """
    part = dict(scientific_part(run.settings))
    images_key = getattr(run.manifest, "images_key", None)
    if images_key is not None:  # manifests of newer runs have it
        part |= {"images": images_key, "numerics": getattr(run.manifest, "numerics", 1)}
    part["dataset"] = {key: value for key, value in part["dataset"].items() if not key.startswith("target_")}
    if fold_of(run):  # the key of the images says how they are divided as well
        counts = (run.manifest.num_train, run.manifest.num_tune, run.manifest.num_val)
        part["images"] = sum(count or 0 for count in counts)
        del part["dataset"]["fold"]
    for name in less:
        group, _, key = name.partition(".")
        if key and group in part:
            part[group] = {other: value for other, value in part[group].items() if other != key}
        elif not key:
            part.pop(group, None)
    for name in keep:
        group, _, key = name.partition(".")
        part[group] = {**part.get(group, {}), key: run.config[group][key]}
    return key_of(part)


def shared_columns(run: Run, less: Iterable[str] = SCAN_AND_SEED, keep: Iterable[str] = ()) -> dict[str, Any]:
    """What all tables say of a run: what it is, what may not be said of it, how good it is, and how soon.

    * `storage` is its label with its numbers; `setting` as `setting_key` has it; `group`
      is NaN for a policy, and 0 for the baseline.
    * `final_score`: of the finished model, which is what is reported; `best_score`: of its best evaluation,
      chosen by the very images that it is measured on.
    * `facts_of` and `reached_of`.
    """
    manifest, config = run.manifest, run.config
    facts = facts_of(run)
    return {
        "run_id": manifest.run_id,
        "dataset": run.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "scan": scan_label(config["scan"], config.get("records")),
        "encoding": manifest.encoding,
        "group": NEVER if has_policy(config) else group_number(manifest.encoding, manifest.scan_group),
        "storage": storage_label(config["storage"]),
        "setting": setting_key(run, less, keep),
        "seed": manifest.seed,
        "target_score": manifest.target,
        **facts,
        "final_score": run.eval_rows[-1]["val_score"],
        "best_score": max(row["val_score"] for row in run.eval_rows),
        **reached_of(run, facts["no_target"], facts["no_seconds"]),
    }


def tidy_frame(
    runs: Sequence[Run],
    columns: Sequence[str],
    own: Callable[[Run], dict[str, Any]] | None = None,
    *,
    less: Sequence[str] = SCAN_AND_SEED,
    keep: Sequence[str] = (),
    times: Sequence[str] = (),
) -> pd.DataFrame:
    """One row per run: `columns` of what is shared (`shared_columns`) and of what `own` says of a run.

    Args:
        runs: Finished runs.
        columns: In their order.
        own: A room's own columns, by name.
        less: What the room compares, and `setting` does not stand for (`setting_key`).
        keep: What of it `setting` stands for all the same.
        times: Columns of seconds and rates: NaN where `no_seconds` says why.
    """
    rows = [shared_columns(run, less, keep) | (own(run) if own else {}) for run in runs]
    frame = _with_folds(_with_shares(pd.DataFrame(rows, columns=list(columns)), runs), runs)
    if times:
        frame.loc[frame["no_seconds"] != "", list(times)] = NEVER
    return frame


def per_setting(
    table: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any], pd.DataFrame]]:
    """(title, values of `keys`, rows) of every group of comparable runs; all have dataset, label, model."""
    for values, rows in table.groupby(list(keys), sort=True):
        group: dict[str, Any] = dict(zip(keys, values, strict=True))
        yield task_title(group["dataset"], group["label"], group["model"]), group, rows


def runs_frame(runs: Sequence[Run], quality: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row of RUN_COLUMNS per run: what it was, what it read, how fast, how good. Shares are 0..1.

    * `mean_image_bytes` of a policy's run is what it read, its probes included.
    * `ms_ssim`, `num_scales`, `ms_ssim_of`: as `quality_of` finds them; `quality` is `load_quality`'s.
    * Clocks and rates are as measured, over the whole run; where `no_seconds` says why, they are not this
      storage's, and neither a time to the target nor any other table shows them. `images_per_s` and
      `wait_share` are over training and waiting, `storage_mib_per_s` over the wall less evaluation.
    """
    return tidy_frame(runs, RUN_COLUMNS, lambda run: _read_and_spent(run, quality))


def eval_curves(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per evaluation: its run's identity (RUN_IDENTITY) and the evaluation row as logged."""
    curves = []
    for run in runs:
        columns = shared_columns(run) | {"mean_image_bytes": _mean_image_bytes(run)}
        identity = {key: columns[key] for key in RUN_IDENTITY}
        # Rows of older runs call the baseline group 1.
        curves += [
            {**identity, **row, "scan_group": group_number(run.manifest.encoding, row["scan_group"])}
            for row in run.eval_rows
        ]
    if not curves:
        return pd.DataFrame(columns=[*RUN_IDENTITY, *(column.name for column in COLUMNS)])
    of_rows = [run for run in runs for _ in run.eval_rows]
    return _with_folds(_with_shares(pd.DataFrame(curves), of_rows), of_rows)


def _with_shares(frame: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """With SHARE of each row's run, if any run's records have another scan script than libjpeg's."""
    if all(script_of_records(run.config.get("records", {})) == DEFAULT for run in runs):
        return frame
    return frame.assign(**{SHARE: [_bytes_share(run) for run in runs]})


def _with_folds(frame: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """With `fold` of each row's run (`fold_of`), if any has one: a fold repeats a setting as a seed does."""
    return frame.assign(fold=[fold_of(run) for run in runs]) if any(map(fold_of, runs)) else frame


def _bytes_share(run: Run) -> float:
    """Of all bytes of its images, what a static level reads; NaN of a policy."""
    last, image_bytes = run.rows[-1], run.manifest.mean_prefix_bytes
    if has_policy(run.config) or image_bytes is None or not last.get("full_bytes"):
        return NEVER
    return float(image_bytes * last["samples_seen"] / last["full_bytes"])


def _read_and_spent(run: Run, sets: pd.DataFrame | None) -> dict[str, Any]:
    config, last = run.config, run.rows[-1]
    storage = {key: config["storage"][key] for key in ("bandwidth_mib_per_s", "latency_ms", "requests_per_s")}
    quality = quality_of(run, sets)
    return {
        "mean_image_bytes": _mean_image_bytes(run),
        "decode": config["loader"].get("decode", "libjpeg"),
        "antialias": config["loader"].get("antialias", False),
        "ms_ssim": quality.ms_ssim,
        "num_scales": quality.num_scales,
        "ms_ssim_of": quality.measured_on,
        **storage,
        "seek_ms": config["storage"].get("seek_ms", 0.0),  # came later
        **interval_rates({}, last),
        "epochs": last["epoch"],
        "samples": last["samples_seen"],
        **{key: last[key] for key in ("train_s", "wait_s", "probe_s", "record_bytes", "probe_bytes")},
        "git_sha": run.manifest.git_sha,
        "git_dirty": run.manifest.git_dirty,
    }


def _mean_image_bytes(run: Run) -> float | None:
    """What the index says of a static level; of a policy, what its run and its probes read per image."""
    last = run.rows[-1]
    if not has_policy(run.config) or last["samples_seen"] == 0:
        return run.manifest.mean_prefix_bytes
    return (last["record_bytes"] + last["probe_bytes"]) / last["samples_seen"]
