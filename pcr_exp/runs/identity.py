"""A run's name: readable, and equal for two runs exactly if the same science would come out of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pcr_exp.config.records import key_of
from pcr_exp.config.runners import TrainConfig

# What changes where files lie, how fast this machine works or how often it speaks, but never what is learned.
_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    # The paper's recipe counts where training=paper or model=paper copies from it.
    "dataset": ("root", "paper"),
    "loader": ("num_workers", "prefetch_batches", "records_ahead", "timeout_s"),
    "training": ("log_every_steps", "checkpoint_every_steps", "device", "num_threads"),
}
_GROUPS_WITHOUT_EFFECT = ("records", "tracking", "runs_root")
_OF_SEVERAL_PROCESSES = ("gradients", "network", "world_size")
"""One process has nobody to talk to; its runs are called what they were before these keys were there."""


def run_id(config: TrainConfig) -> str:
    """Return the run's name, such as `photos-focus-resnet18-group_5-hdd-s0-1a2b3c4d`.

    The eight hex digits are a key of the scientific configuration: everything but paths, workers, logging,
    device. A file of pretrained weights counts by its name.
    """
    words = (
        config.dataset.name,
        config.dataset.label,
        config.model.name,
        config.scan.name,
        config.storage.name,
        *_processes(config),
        f"s{config.seed}",
        key_of(scientific_part(asdict(config))),
    )
    return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in words)


def _processes(config: TrainConfig) -> tuple[str, ...]:
    if config.world_size == 1:
        return ()
    return (f"{config.gradients.name}_{config.gradients.mode}_x{config.world_size}", config.network.name)


def scientific_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a whole configuration, as plain dicts, without what cannot change what is learned."""
    part: dict[str, Any] = {key: value for key, value in config.items() if key not in _GROUPS_WITHOUT_EFFECT}
    if part.get("world_size", 1) == 1:
        for key in _OF_SEVERAL_PROCESSES:
            part.pop(key, None)
    for group, keys in _WITHOUT_EFFECT.items():
        part[group] = {key: value for key, value in config[group].items() if key not in keys}
    return part


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
