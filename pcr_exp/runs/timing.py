"""What decides how long a run takes, and nothing that it learns: settings, machine, code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pcr_exp.config.records import key_of

_SETTINGS = {
    "loader": ("num_workers", "prefetch_batches", "records_ahead"),
    "storage": ("reads_in_flight",),
    "training": ("device", "num_threads"),
}


def timing_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a whole configuration, as plain dicts, that change seconds alone.

    As they were given: `training.device=auto` stays `auto`, on whatever it ran. World size is among them
    too; where it changes what is learned it is part of a run's identity besides.
    """
    settings = {f"{group}.{key}": config[group].get(key) for group, keys in _SETTINGS.items() for key in keys}
    return {**settings, "world_size": config.get("world_size", 1)}


def timing_key(
    settings: Mapping[str, Any],
    *,
    device: str,
    cpu: str,
    num_cores: int,
    gpu: str | None,
    code: str,
) -> str:
    """Return eight hex digits: seconds of two runs can be compared if theirs are equal.

    Args:
        settings: `timing_settings`.
        device: What computed, such as `cpu`.
        cpu: The processor's name.
        num_cores: Cores that the run could use.
        gpu: The name of the GPU that trained, if one did.
        code: The commit, or the version of what is installed.
    """
    machine = {"device": device, "cpu": cpu, "num_cores": num_cores, "gpu": gpu, "code": code}
    return key_of({"settings": dict(settings), **machine})
