"""A run's sessions as recorded in its manifest, and what determines their speed: settings, machine and code.

A session is one part of the run, from its start or a checkpoint to its end or an interruption.
"""

from __future__ import annotations

import hashlib
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.system import provenance
from pcr_exp.system.keys import key_of
from pcr_exp.system.provenance import num_cores, utc_now

_SETTINGS = {
    "loader": ("num_workers", "prefetch_batches", "records_ahead"),
    "storage": ("reads_in_flight", "cache", "cache_mib"),
    "training": ("device", "num_threads"),
}


@dataclass(kw_only=True, slots=True)
class SessionFacts:
    """A session: the machine, code and settings it used, and the part of the run that it trained."""

    started_at: str
    """ISO 8601, UTC."""
    finished_at: str | None = None
    status: str = "running"
    """One of the manifest's statuses; it stays `running` if the session was killed."""
    from_step: int | None = None
    """Updates completed before it began to train; None if it ended before training."""
    command: str
    settings: dict[str, Any]
    """Settings that affect only speed, as configured."""
    device: str
    cpu: str
    num_cores: int
    gpu: str | None
    host: str
    """Eight hex digits of the host name's hash; equal if two runs shared a machine."""
    git_sha: str | None
    git_dirty: bool | None
    packages: dict[str, str | None]
    python: str
    timing_key: str
    """Key of settings, machine and code; see `timing_key`."""


def new_session(config: TrainConfig, device: torch.device) -> SessionFacts:
    """Describe a session that begins now in this process."""
    git_sha, git_dirty = provenance.git_state()
    packages = provenance.package_versions()
    cpu, gpu = provenance.cpu_model(), provenance.gpu_model(device)
    settings = timing_settings(asdict(config))
    code = f"{git_sha} {'changed' if git_dirty else ''}" if git_sha else f"version {packages['pcr-exp']}"
    return SessionFacts(
        started_at=utc_now(),
        command=provenance.command_line(),
        settings=settings,
        device=str(device),
        cpu=cpu,
        num_cores=num_cores(),
        gpu=gpu,
        host=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8],
        git_sha=git_sha,
        git_dirty=git_dirty,
        packages=packages,
        python=platform.python_version(),
        timing_key=timing_key(
            settings, device=device.type, cpu=cpu, num_cores=num_cores(), gpu=gpu, code=code
        ),
    )


def timing_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings of a whole configuration (as plain dicts) that affect only speed.

    Values stay as configured: `training.device=auto` stays `auto`, whatever device was used. World size is
    included; where it also affects what is learned, it is part of the run's identity as well.
    """
    settings = {f"{group}.{key}": config[group].get(key) for group, keys in _SETTINGS.items() for key in keys}
    if config["training"].get("exclusive"):  # added later: runs without it keep their keys
        settings["training.exclusive"] = True
    return {**settings, "world_size": config.get("world_size", 1)}


def timing_key(
    settings: Mapping[str, Any], *, device: str, cpu: str, num_cores: int, gpu: str | None, code: str
) -> str:
    """Return a key of eight hex digits; times of two runs can be compared if their keys are equal.

    Args:
        settings: As returned by `timing_settings`.
        device: Type of the training device, such as `cpu`.
        cpu: The processor's name.
        num_cores: Cores available to the run.
        gpu: Name of the GPU that trained, if any.
        code: The commit, or the installed version.
    """
    machine = {"device": device, "cpu": cpu, "num_cores": num_cores, "gpu": gpu, "code": code}
    return key_of({"settings": dict(settings), **machine})


def timing_keys(sessions: Sequence[SessionFacts]) -> list[str]:
    """Return the distinct timing keys of the sessions that contributed to the run as it is now.

    Updates that a killed session trained after its last checkpoint are repeated by the next one. A session
    contributed nothing if a later one began at the same update or before.
    """
    keys: list[str] = []
    earliest: float = float("inf")
    for session in reversed(sessions):
        if session.from_step is not None and session.from_step < earliest:
            earliest = session.from_step
            if session.timing_key not in keys:
                keys.insert(0, session.timing_key)
    return keys


def joint_key(keys: Sequence[str]) -> str | None:
    """Return the only key, one key that combines several, or None if there are none."""
    if len(keys) < 2:
        return keys[0] if keys else None
    return key_of({"several": sorted(keys)})
