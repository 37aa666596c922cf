"""Checkpoints on disk: complete or absent, and loadable without running any code from the file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from pcr_exp.errors import RunError
from pcr_exp.system.atomic import write_atomic

FORMAT = 1


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings, lists, dicts); a crash leaves the previous file or this one.

    Raises:
        StorageError: the disk is full or refuses.
    """
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    write_atomic(path, [buffer.getvalue()])


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises:
        RunError: the file is damaged, or of another format.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's unpickler meets garbage with any kind of error
        raise RunError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}: {error}). "
            "Delete its run directory to start the run again."
        ) from error
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT:
        raise RunError(
            f"{path} is a checkpoint of format {found!r}; this version reads format {FORMAT}. "
            "Delete its run directory to start the run again."
        )
    return state
