"""What a result depends on besides its configuration: code, packages, machine."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

_PACKAGES = (
    *("pcr-exp", "torch", "torchvision", "numpy", "hydra-core", "omegaconf", "wandb"),
    *("simplejpeg", "opencv-python-headless", "turbojpeg", "pillow", "scikit-image", "fsspec", "xxhash"),
)


def git_state(folder: Path = Path(__file__).parent) -> tuple[str | None, bool | None]:
    """Return (commit, has uncommitted changes) of the checkout that tracks `folder`, else (None, None)."""
    sha = _git(folder, "rev-parse", "HEAD")
    # A file of an installed package can lie inside someone else's checkout; only a tracked one counts.
    if sha is None or _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return None, None
    changes = _git(folder, "status", "--porcelain")
    return sha, bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def command_line() -> str:
    """Return the command that started this process, as one would type it."""
    interpreter, *arguments = sys.orig_argv
    return shlex.join([Path(interpreter).name, *arguments])


def package_versions() -> dict[str, str | None]:
    """Return the versions of the packages that results depend on; None: not installed as a package."""
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def cpu_model() -> str:
    """Return the CPU's name, as Linux tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpu_model(device: torch.device) -> str | None:
    """Return the name of the GPU that trains, or None."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None
