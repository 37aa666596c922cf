"""The frame of runs: one row per run with everything that tables and figures show, computed once.

Values for tables have columns of their own (RUN_COLUMNS are those of runs.csv). `config`, `science` and
`rows` hold a run's plain files, from which pages derive their own columns. Time to a target is derived here
from rows, and never logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcr_exp.analysis.reporting_rules import FACTS, NAN, facts_of, is_exclusive
from pcr_exp.analysis.runs import Run, evaluations_at
from pcr_exp.analysis.tables import task_title
from pcr_exp.config.describe import group_number, network_label, scan_label, storage_label
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
"""Label of an MS-SSIM that is not measured: the baseline and the last scan group are complete images."""

_STATIC_KEYS = set(ScanConfig.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class RunQuality:
    """Mean MS-SSIM of a run's scan group; NaN if its images were never measured as the run decoded them."""

    ms_ssim: float = float("nan")
    num_scales: float = float("nan")
    """The fewest scales of MS-SSIM for an image; small images allow fewer than five."""
    measured_on: str = ""
    """`crops_of` its training size, WHOLE or BY_DEFINITION; empty if it was not measured."""


def crops_of(side_px: int) -> str:
    """Return `crops of 128 px`: training crops, whose MS-SSIM differs from that of whole images."""
    return f"crops of {side_px} px"


def describe_ms_ssim(of: Iterable[str]) -> str:
    """Return the name of an MS-SSIM column or axis, with what was measured: `MS-SSIM (crops of 128 px)`."""
    measured = sorted({words for words in of if words} - {BY_DEFINITION})
    return f"MS-SSIM ({' / '.join(measured)})" if measured else "MS-SSIM"


def quality_of(run: Run, sets: pd.DataFrame | None) -> RunQuality:
    """Return the quality of the images that a run trained on.

    The run's own measurement (200 of its own transformed images) comes first. Otherwise it is the measurement
    of its records in `sets` (`load_quality`), matched by the records' fingerprint, scan group, decode mode
    and filter, never by name: other images or other decoding have another MS-SSIM. For the baseline and the
    last scan group, which are complete, it is 1. A policy's run has no single quality, so its values are NaN.
    """
    mode = {key: run.config["loader"][key] for key in ("decode", "antialias")}
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
    """Return whether a run may read several groups: it has a policy's keys, or its data is a mixture."""
    return not config["scan"].keys() <= _STATIC_KEYS or "sources" in config.get("dataset", {})


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
"""Column of bytes read over all bytes; shown if any records have a scan script other than libjpeg's."""

REACHED = ["epochs_to_target", "fresh_to_target", "bytes_to_target", "time_to_target_s"]
"""The cost of reaching the target (`reached_of`)."""


def seconds_of(row: Any) -> Any:
    """Return the seconds that count at a row, or at each row of a table: training, data wait and probes.

    Evaluation time does not count.
    """
    return row["train_s"] + row["wait_s"] + row["probe_s"]


def first_reached(rows: Iterable[Mapping[str, Any]], target_score: float) -> Mapping[str, Any] | None:
    """Return the first full-fidelity evaluation with val_score >= target_score, or None."""
    evaluations = evaluations_at("full", rows)
    return next((row for row in evaluations if row["val_score"] >= target_score), None)


def reached_of(run: Run, target_excluded_because: str, timing_excluded_because: str) -> dict[str, float]:
    """Return REACHED of a run: epochs, fresh images, bytes of records, and seconds.

    Values are of the first evaluation at the target. They are NaN if none reaches it, or if the reporting
    rules exclude them.

    Args:
        run: A run.
        target_excluded_because: Why no time to the target may be shown; empty if it may.
        timing_excluded_because: Why no seconds may be shown; empty if they may.
    """
    row = None if target_excluded_because else first_reached(run.rows, run.manifest.target)
    if row is None:
        return dict.fromkeys(REACHED, NAN)
    seconds = NAN if timing_excluded_because else seconds_of(row)
    return dict(zip(REACHED, (row["epoch"], row["samples_seen"], row["record_bytes"], seconds), strict=True))


GROUP_KEYS = ["dataset", "label", "model", "storage", "setting"]
"""Columns that compared runs share; `setting` stands for everything except scan and seed."""

LEVEL = ["scan", "encoding", "group"]
"""Columns of a scan level: its label, and what it reads. `style.ScanLevel` draws by the last two."""

SCAN_AND_SEED = ("scan", "seed")
"""Settings that `setting` leaves out, unless a table chooses others."""

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
"""Columns of runs.csv. SHARE and `fold` follow if they are more than a constant (`with_more`)."""

_MORE_COLUMNS = [
    *("image_px", "fold", SHARE, "network", "world_size", "exclusive", "numerics", "images_key"),
    *("num_train", "num_images", "fresh_to_target", "bytes_to_target", "config", "science", "rows"),
    "predictions",
]


def run_frame(runs: Iterable[Run], quality: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return one row per run. Shares are 0..1; numbers that the reporting rules exclude are NaN.

    * `dataset` names the images as this run measured them, or another run of the same images.
    * `storage` is a label with its numbers. `setting` comes from `setting_key`. `group` is NaN for a policy,
      and 0 for the baseline. `fold`, such as `0 of 5`, is empty without folds.
    * `final_score` is the finished model's, and the reported one. `best_score` is the highest of all
      evaluations, chosen on the same images that it is measured on.
    * FACTS and REACHED come from `reporting_rules.facts_of` and `reached_of`. `exclusive` is whether the run
      had the machine to itself, None if unknown.
    * `mean_image_bytes` of a policy's run is what it read per image, probes included.
    * `ms_ssim`, `num_scales` and `ms_ssim_of` come from `quality_of`; `quality` comes from `load_quality`.
    * Clocks and rates are as measured, over the whole run. If `timing_excluded_because` has a reason, they do
      not characterise the storage, and no time to a target and no other table shows them. `images_per_s` and
      `wait_share` are over training and data wait, `storage_mib_per_s` over wall time without evaluation.
    * `config` is the whole configuration, and `science` the part that decides what is learned, as dicts.
      `rows` are as logged, with the primary metric as `val_score`. `predictions` are per image, or None.
    """
    runs = list(runs)
    frame = pd.DataFrame([_of_run(run, quality) for run in runs], columns=[*RUN_COLUMNS, *_MORE_COLUMNS])
    return frame.assign(dataset=_names_of_images(runs), setting=setting_keys(frame))


def _names_of_images(runs: Sequence[Run]) -> list[str]:
    """Return each run's name of its dataset: what it measured, or another run of the same images."""
    known = {_images_of(run): run.dataset for run in runs if run.manifest.dataset_facts is not None}
    return [
        known.get(_images_of(run), run.dataset) if run.manifest.images_key else run.dataset for run in runs
    ]


def _images_of(run: Run) -> tuple[str | None, str]:
    return run.manifest.images_key, run.manifest.label


def with_more(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return the columns, plus SHARE if a scan script is not libjpeg's, plus `fold` if a run has folds.

    A fold repeats a setting, as a seed does.
    """
    scripts = (script_of_records(config.get("records", {})) for config in frame["config"])
    more = {SHARE: any(script != DEFAULT for script in scripts), "fold": (frame["fold"] != "").any()}
    return [*columns, *(name for name, is_there in more.items() if is_there)]


def setting_keys(
    frame: pd.DataFrame, less: Iterable[str] = SCAN_AND_SEED, keep: Iterable[str] = ()
) -> list[str]:
    """Return `setting_key` of each row of the frame of runs."""
    return [setting_key(run, less, keep) for run in frame.to_dict("records")]


def setting_key(run: Mapping[Any, Any], less: Iterable[str] = SCAN_AND_SEED, keep: Iterable[str] = ()) -> str:
    """Return eight hex digits of a run's scientific configuration, without its target and without `less`.

    Runs with equal key, dataset, model and storage differ only in `less` and in the validation fold.

    Args:
        run: A row of `run_frame`.
        less: Groups (`echo`) and dotted keys (`training.epochs`) to leave out.
        keep: Dotted keys of groups in `less` that count nevertheless.
    """
    part = dict(run["science"])
    if run["images_key"] is not None:
        part |= {"images": run["images_key"], "numerics": run["numerics"]}
    part["dataset"] = {key: value for key, value in part["dataset"].items() if not key.startswith("target_")}
    if run["fold"]:  # the key of the images covers their split, too
        limited = run["config"]["dataset"].get("max_train_images") is not None
        part["images"] = None if limited else run["num_images"]  # a limit leaves each fold another number
        del part["dataset"]["fold"]
    part = without(part, less)
    for name in keep:
        group, _, key = name.partition(".")
        part[group] = {**part.get(group, {}), key: run["config"][group][key]}
    return key_of(part)


def without(part: Mapping[str, Any], less: Iterable[str]) -> dict[str, Any]:
    """Return a part of a configuration without some groups (`echo`) and dotted keys (`training.epochs`)."""
    left = dict(part)
    for name in less:
        group, _, key = name.partition(".")
        if not key:
            left.pop(group, None)
        elif isinstance(left.get(group), Mapping):
            left[group] = {other: value for other, value in left[group].items() if other != key}
    return left


def per_setting(
    table: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any], pd.DataFrame]]:
    """Yield (title, values of `keys`, rows) per comparable group; `keys` include dataset, label and model."""
    for values, rows in table.groupby(list(keys), sort=True):
        group: dict[str, Any] = dict(zip(keys, values, strict=True))
        yield task_title(group["dataset"], group["label"], group["model"]), group, rows


def by_level(table: pd.DataFrame, before: Sequence[str], after: Sequence[str] = ()) -> pd.DataFrame:
    """Sort rows by the columns `before`, then the baseline, scan groups and policies, then `after`."""
    place = table["group"].where(table["encoding"] != "baseline", 0)
    order = [*before, "_place", *after]
    return table.assign(_place=place).sort_values(order, ignore_index=True).drop(columns="_place")


def eval_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per full-fidelity evaluation: its run's identity (RUN_IDENTITY), and the logged row."""
    more = with_more(frame, [])
    found = [(run, row) for run in frame.to_dict("records") for row in evaluations_at("full", run["rows"])]
    if not found:
        return pd.DataFrame(columns=[*RUN_IDENTITY, *(column.name for column in COLUMNS)])
    curves = pd.DataFrame({**{key: run[key] for key in RUN_IDENTITY}, **row} for run, row in found)
    # Logged rows store the baseline as group 1.
    groups = [group_number(run["encoding"], row["scan_group"]) for run, row in found]
    return curves.assign(scan_group=groups, **{key: [run[key] for run, _ in found] for key in more})


def _of_run(run: Run, sets: pd.DataFrame | None) -> dict[str, Any]:
    manifest, config, last = run.manifest, run.config, run.rows[-1]
    facts, quality = facts_of(run), quality_of(run, sets)
    scores = [row["val_score"] for row in run.eval_rows] or [NAN]
    counts = (manifest.num_train, manifest.num_tune, manifest.num_val)
    limits = ("bandwidth_mib_per_s", "latency_ms", "seek_ms", "requests_per_s")
    of_last_row = ("train_s", "wait_s", "probe_s", "record_bytes", "probe_bytes")
    return {
        "run_id": manifest.run_id,
        "dataset": run.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "image_px": config["training"]["image_size"],
        "scan": scan_label(config["scan"], config.get("records")),
        "encoding": manifest.encoding,
        "group": NAN if has_policy(config) else group_number(manifest.encoding, manifest.scan_group),
        SHARE: _bytes_share(run),
        "storage": storage_label(config["storage"]),
        **{key: config["storage"][key] for key in limits},
        "network": network_label(config["network"]) if "network" in config else "",
        "world_size": config["world_size"],
        "seed": manifest.seed,
        "fold": _fold_of(config["dataset"]),
        "target_score": manifest.target,
        **facts,
        "exclusive": is_exclusive(run),
        "final_score": scores[-1],
        "best_score": max(scores),
        **reached_of(run, facts["target_excluded_because"], facts["timing_excluded_because"]),
        "mean_image_bytes": _mean_image_bytes(run),
        "decode": config["loader"]["decode"],
        "antialias": config["loader"]["antialias"],
        "ms_ssim": quality.ms_ssim,
        "num_scales": quality.num_scales,
        "ms_ssim_of": quality.measured_on,
        **interval_rates({}, last),
        "epochs": last["epoch"],
        "samples": last["samples_seen"],
        **{key: last[key] for key in of_last_row},
        "git_sha": manifest.git_sha,
        "git_dirty": manifest.git_dirty,
        "numerics": manifest.numerics,
        "images_key": manifest.images_key,
        "num_train": manifest.num_train,
        "num_images": sum(count or 0 for count in counts),
        "config": run.settings,
        "science": scientific_part(run.settings),
        "rows": run.rows,
        "predictions": run.predictions,
    }


def _fold_of(dataset: Mapping[str, Any]) -> str:
    """Return the validation fold, as `0 of 5`; empty without folds."""
    return f"{dataset['fold']} of {dataset['num_folds']}" if dataset.get("num_folds") else ""


def _bytes_share(run: Run) -> float:
    """Return the share of its images' bytes that a static level reads; NaN for a policy, or if unknown."""
    last, image_bytes = run.rows[-1], run.manifest.mean_prefix_bytes
    if has_policy(run.config) or image_bytes is None or not last.get("full_bytes"):
        return NAN
    return float(image_bytes * last["samples_seen"] / last["full_bytes"])


def _mean_image_bytes(run: Run) -> float | None:
    """Return bytes per image: from the index for a static level, as read (probes included) for a policy."""
    last = run.rows[-1]
    if not has_policy(run.config) or last["samples_seen"] == 0:
        return run.manifest.mean_prefix_bytes
    return (last["record_bytes"] + last["probe_bytes"]) / last["samples_seen"]
