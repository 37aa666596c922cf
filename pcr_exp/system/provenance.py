"""Facts that results depend on besides their configuration (code, packages, machine), and their files."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from pcr_exp.places import COMMAND, as_typed
from pcr_exp.redaction import redacted_words
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.lazy import torch

_PACKAGES = (
    *("pcr-exp", "torch", "torchvision", "numpy", "hydra-core", "omegaconf", "wandb"),
    *("simplejpeg", "opencv-python-headless", "turbojpeg", "pillow", "scikit-image", "fsspec", "xxhash"),
)
_ABSOLUTE = re.compile(r"""(?:^|(?<=[=,\['"]))/[^,\]'"]*""")
"""An absolute path: a word, the value in one, or an item of a list of values."""

SWEEP_VARIABLE = "PCR_EXP_SWEEP"
"""Environment variable with the sweep's folder, set in jobs of a sweep."""


def git_state(folder: Path = Path(__file__).parent) -> tuple[str | None, bool | None]:
    """Return (commit, has uncommitted changes) of the checkout that tracks `folder`, else (None, None)."""
    sha = _git(folder, "rev-parse", "HEAD")
    # An installed package can be inside someone else's checkout, so only a tracked file counts.
    if sha is None or _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return None, None
    changes = _git(folder, "status", "--porcelain")
    return sha, bool(changes)


def describe_code(
    git_shas: Iterable[str | None], changed: bool | None, packages: Mapping[str, str | None]
) -> str:
    """Describe the code that measured: `commit 1a2b3c, 4d5e6f with uncommitted changes`, or `pcr-exp 0.1.0`.

    Args:
        git_shas: Commits from `git_state`; None where there was no checkout.
        changed: Whether one of them had uncommitted changes.
        packages: Versions from `package_versions`.
    """
    known = sorted({sha for sha in git_shas if sha is not None})
    if not known:
        return f"pcr-exp {packages.get('pcr-exp') or 'of an unknown version'}"
    return f"commit {', '.join(known)}{' with uncommitted changes' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def command_line() -> str:
    """Return the command that started this process, as anyone would type it, without this machine's paths.

    Secrets are hidden. Folders below the working folder are relative to it, and those below the user's home
    begin with `~`. Of others only the last name is kept, as in `dataset.root=<folder>/photos`. (config.yaml
    has the full paths.)
    """
    words = redacted_words(_typed(sys.orig_argv[1:]))
    return shlex.join(_without_machine(word) for word in words)


def _typed(arguments: Sequence[str]) -> list[str]:
    first = next((first for first, word in enumerate(arguments) if not word.startswith("-")), 0)
    program = Path(arguments[first]).stem if arguments else ""
    is_module = first > 0 and arguments[first - 1] == "-m"
    if is_module and (arguments[first].startswith("experiments.") or arguments[first] == "pcr_exp"):
        return [*_launcher(), "-m", *arguments[first:]]
    if program == COMMAND:
        launcher = _launcher()
        launcher = [*launcher, "--no-python"] if launcher != ["python"] else []
        return [*launcher, COMMAND, *arguments[first + 1 :]]
    if HydraConfig.initialized():  # a process started for this job by one of Hydra's launchers
        config = HydraConfig.get()
        runner = as_typed(f"python -m experiments.{config.job.config_name}")
        return [*runner.split(), *config.overrides.task]
    return ["python", *arguments]


def _launcher() -> list[str]:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ["python"]
    num_hosts = os.environ.get("GROUP_WORLD_SIZE", "1")
    hosts = ["--nnodes", num_hosts] if num_hosts != "1" else []
    return ["torchrun", *hosts, "--nproc-per-node", os.environ["LOCAL_WORLD_SIZE"]]


def _without_machine(word: str) -> str:
    return _ABSOLUTE.sub(lambda match: _shorten(Path(match[0])), word)


def _shorten(path: Path) -> str:
    for folder, name in ((Path.cwd(), Path()), (Path.home(), Path("~"))):
        if path.is_relative_to(folder):
            return str(name / path.relative_to(folder))
    return str(Path("<folder>", path.name))


def package_versions(more: Sequence[str] = ()) -> dict[str, str | None]:
    """Return the versions of packages that results depend on, and of `more`; None if not installed."""
    versions: dict[str, str | None] = {}
    for name in (*_PACKAGES, *more):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def cpu_model() -> str:
    """Return the CPU's name, as reported by Linux."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpu_model(device: torch.device) -> str | None:
    """Return the name of the training GPU, or None."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def utc_now() -> str:
    """Return the current time, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine(packages: Sequence[str] = ()) -> dict[str, Any]:
    """Return the environment of a measurement: `packages`, `python`, `kernel`, `cpu`, `num_cores`."""
    return {
        "packages": package_versions(packages),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "num_cores": num_cores(),
    }


def occasion() -> dict[str, Any]:
    """Return the `command`, commit (`git_sha`, `git_dirty`) and time (`measured_at`) of a measurement."""
    git_sha, git_dirty = git_state()
    return {
        "command": command_line(),
        "git_sha": git_sha,
        "git_dirty": git_dirty,
        "measured_at": utc_now(),
    }


def write_measured(path: Path, facts: Mapping[str, Any], packages: Sequence[str] = ()) -> None:
    """Write facts of a measurement as JSON, together with `occasion()` and `machine(packages)`.

    Write it as the last file of a measurement, so that a folder with this file is complete.

    Raises:
        StorageError: the disk is full or refuses.
    """
    write_json(path, {**facts, **occasion(), **machine(packages)})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON, completely or not at all. Raises StorageError if the disk refuses."""
    write_atomic(path, [json.dumps(content, indent=2).encode() + b"\n"])
