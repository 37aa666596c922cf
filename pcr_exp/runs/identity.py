"""A run's readable id, equal for two runs exactly if they would give the same scientific result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pcr_exp.config.commands import OF_THE_COMMAND, TrainConfig
from pcr_exp.config.component_code import component_code
from pcr_exp.config.describe import network_slug, scan_slug, storage_slug
from pcr_exp.config.records import codec_id_of
from pcr_exp.config.related_methods import ActivationsConfig, EchoConfig
from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.config.training import TaskConfig
from pcr_exp.numerics import NUMERICS
from pcr_exp.redaction import redacted
from pcr_exp.system.keys import key_of
from pcr_exp.training.task import primary_metric_of_task

# Settings that affect file locations, speed or how often progress is logged, but never what is learned.
_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    # The paper's recipe counts through the settings that training=paper or model=paper copy from it.
    "dataset": ("root", "table", "columns", "on_error", "paper"),
    "loader": ("num_workers", "prefetch_batches", "records_ahead", "timeout_s"),
    "storage": ("reads_in_flight", "cache", "cache_mib"),
    "training": ("log_every_steps", "checkpoint_every_steps", "device", "exclusive", "num_threads"),
}
_GROUPS_WITHOUT_EFFECT = ("records", "tracking", "runs_root", "components", *OF_THE_COMMAND)
# Keys added after runs were published, with the values that describe those runs. A key with that value is
# left out, so that tables can compare new runs with published ones. These values must never change.
_ADDED_LATER: dict[str, dict[str, Any]] = {
    "dataset": {"group_by": None, "num_folds": None, "fold": None},
    "echo": asdict(EchoConfig()),
    "activations": asdict(ActivationsConfig()),
    "storage": {"seek_ms": 0.0},
    "loader": {"antialias": False, "on_corrupt": "fail"},
    "model": {"mean": None, "std": None},
    "training": {
        "global_batch_size": None,
        "eval_groups": ["full"],
        "optimizer": "sgd",
        "stop_after_s": None,
        "input_sizes": [],
        "input_milestones": [],
    },
    "task": asdict(TaskConfig()),
}
# Settings that all codecs shared before each had its own. They stay part of every codec's identity, so that
# run ids do not change.
_ONCE_OF_EVERY_CODEC = {"sparsity": 1.0, "zero_run": True, "fraction": 0.25, "rank": 2}
_OF_STUDIES_WITHOUT_EFFECT = (
    *("out", "out_root", "features_root", "num_workers", "num_threads", "device", "batch_size", "runs"),
    "num_explored_images",
)
"""Study settings that affect only file locations or speed. Evaluated runs count by their ids instead."""
_OF_SEVERAL_PROCESSES = ("gradients", "network", "world_size")
"""Left out for a single process, which exchanges nothing; its runs keep ids from before these keys."""


def run_id(config: TrainConfig, images: str) -> str:
    """Return the run's name, such as `photos-focus-resnet18-group_5-hdd-s0-1a2b3c4d`.

    The eight hex digits are a key of `identity`. Scan, storage and network are named by their actual values,
    not by a preset that was modified. A related method in use, such as echo, is named before the seed.

    Args:
        config: The whole configuration.
        images: Key of the images of all splits, wherever they lie.
    """
    settings = asdict(config)
    part = scientific_part(settings)
    dataset = config.dataset
    words = (
        dataset.name,
        *([f"fold_{dataset.fold}_of_{dataset.num_folds}"] if dataset.folds else []),
        dataset.label,
        config.model.name,
        scan_slug(config.scan, config.records),
        storage_slug(config.storage),
        *_names_of_added_groups(part),
        *_processes(config),
        f"s{config.seed}",
        key_of(identity(settings, images, own_files(config))),
    )
    return slug(words)


def own_files(config: TrainConfig) -> dict[str, str | None]:
    """Return keys of the user's files that a run depends on: component code and initial weights."""
    weights = config.model.weights
    return {**component_code(config), **({} if weights is None else {"weights": file_key(weights)})}


def file_key(path: str | None) -> str | None:
    """Return a key of a file's content, 16 hex digits; None without a file, which opening it will report."""
    if path is None or not (file := Path(str(path)).expanduser()).is_file():
        return None
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def slug(words: Iterable[str]) -> str:
    """Join words into a valid folder name."""
    return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in words)


def identity(
    config: Mapping[str, Any], images: str, files: Mapping[str, str | None] = MappingProxyType({})
) -> dict[str, Any]:
    """Return all that determines what a run learns: scientific configuration, images, numerics version.

    The result is a plain dict without secrets, as in `config.yaml`. `images` is as in `run_id`. `files` comes
    from `own_files`, and is empty for built-in components and fresh weights. The number of processes counts
    only if gradients are encoded, go through a server or cross a throttled network. Otherwise only the global
    batch size counts.
    """
    part: dict[str, Any] = redacted(scientific_part(config))
    training, world_size = part["training"], config["world_size"]
    global_batch_size = training.get("global_batch_size") or training["batch_size"] * world_size
    part["training"] = {**training, "global_batch_size": global_batch_size}
    if not _processes_count(config):
        for key in _OF_SEVERAL_PROCESSES:
            part.pop(key, None)
    return {**part, "images": images, "numerics": NUMERICS, **({"code": dict(files)} if files else {})}


def identity_of_study(study: Mapping[str, Any], images: str, code: Mapping[str, str]) -> dict[str, Any]:
    """Return all that determines a study's results, as `identity` does for a run; a study trains nothing.

    Args:
        study: Its whole configuration and whatever else determines its results, as plain values.
        images: Key of the images that are studied.
        code: As `files` in `identity`.
    """
    counts = {key: value for key, value in study.items() if key not in _OF_STUDIES_WITHOUT_EFFECT}
    part: dict[str, Any] = redacted(scientific_part(counts))
    part |= {"images": images, "numerics": NUMERICS, **({"code": dict(code)} if code else {})}
    plain: dict[str, Any] = json.loads(json.dumps(part))
    return plain


def _processes_count(config: Mapping[str, Any]) -> bool:
    gradients, network = config["gradients"], config["network"]
    coded = gradients["name"] != "none" or gradients["mode"] != "ddp"
    limited = network["bandwidth_mbit_per_s"] is not None or network["latency_ms"] > 0
    return bool(config["world_size"] > 1 and (coded or limited))


def _processes(config: TrainConfig) -> tuple[str, ...]:
    if not _processes_count(asdict(config)):
        return ()
    gradients = config.gradients
    return (f"{gradients.name}_{gradients.mode}_x{config.world_size}", network_slug(config.network))


def scientific_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a whole configuration (plain dicts) without the settings that cannot affect what is learned.

    A run from before a key existed gives the same result as one with that key's value in `_ADDED_LATER`.
    Tables use the result to find runs that differ in nothing else.
    """
    part: dict[str, Any] = {key: value for key, value in config.items() if key not in _GROUPS_WITHOUT_EFFECT}
    if part.get("world_size", 1) == 1:
        for key in _OF_SEVERAL_PROCESSES:
            part.pop(key, None)
    codec = codec_id_of(config.get("records", {}))
    if codec != SCANS["pcr"]:
        part["records"] = {"codec": codec}
    if "gradients" in part:
        part["gradients"] = {**_ONCE_OF_EVERY_CODEC, **part["gradients"]}
    for group, keys in _WITHOUT_EFFECT.items():
        if group in config:  # a study lacks some of them
            part[group] = {key: value for key, value in config[group].items() if key not in keys}
    if "sources" in part["dataset"]:  # a mixture's sources may lie anywhere too
        sources = part["dataset"]["sources"].items()
        unplaced = {name: {k: v for k, v in source.items() if k != "root"} for name, source in sources}
        part["dataset"] = {**part["dataset"], "sources": unplaced}
    part["dataset"] = _with_one_target(part["dataset"], config.get("task", asdict(TaskConfig())))
    if part["dataset"].get("num_folds") is not None:  # a fold validates, so val_fraction has no effect
        part["dataset"].pop("val_fraction", None)
    return without_defaults(part, _ADDED_LATER)


def _with_one_target(dataset: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's settings with only the primary metric's target, as `target_<metric>`.

    Configurations from before tasks existed have this form. If the task is not known here, all targets stay
    as they are.
    """
    headline = primary_metric_of_task(task["name"])
    if "targets" not in dataset or headline is None:
        return dict(dataset)
    kept = {key: value for key, value in dataset.items() if key != "targets"}
    return {**kept, f"target_{headline.name}": dataset["targets"].get(headline.name)}


def _names_of_added_groups(part: Mapping[str, Any]) -> list[str]:
    groups = [group for group, keys in _ADDED_LATER.items() if "name" in keys]
    return [part[group]["name"] for group in groups if "name" in part.get(group, {})]


def without_defaults(config: Mapping[str, Any], added: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a copy of a configuration without the added keys that have their default.

    A configuration with the defaults thus equals one from before these keys existed.

    Args:
        config: Groups of settings; a group of `added` may be missing.
        added: By group, the added keys and their defaults. A group without any key left is removed.
    """
    kept = dict(config)
    for group, defaults in added.items():
        kept[group] = {
            key: value
            for key, value in config.get(group, {}).items()
            if key not in defaults or value != defaults[key]
        }
        if not kept[group]:
            del kept[group]
    return kept


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted keys at which two nested dicts differ."""
    found: list[str] = []
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key}")
    return found
