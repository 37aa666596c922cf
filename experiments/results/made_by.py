"""`results/made_by.yaml`: the pages that make each folder of results, and the hardware of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pcr_exp.analysis.caption import NOT_RECORDED
from pcr_exp.errors import RunError

MADE_BY_FILE = "made_by.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """How the files of one folder are made."""

    pages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arguments of each page, by its name in `experiments.rebuild`."""
    hardware: str | None = None
    """Hardware on which the rows here and in subfolders were measured, unless a file of rows records it."""


@cache
def made_by(results: Path) -> dict[Path, Made]:
    """Return the entries of made_by.yaml in `results`, by folder.

    Raises:
        RunError: an entry has an unknown key, or its folder does not exist.
    """
    entries = yaml.safe_load((results / MADE_BY_FILE).read_text())
    known = {one.name for one in fields(Made)}
    for name, entry in entries.items():
        if unknown := set(entry) - known:
            raise RunError(f"{MADE_BY_FILE}: {name} has {sorted(unknown)}; wanted some of {sorted(known)}.")
        if not (results / name).is_dir():
            raise RunError(f"{MADE_BY_FILE}: {results} has no folder {name}. Take the entry out.")
    return {results / name: Made(**entry) for name, entry in entries.items()}


def hardware_of(folder: Path) -> str | None:
    """Return the hardware in made_by.yaml for a folder or the nearest one above it; None if there is none."""
    above = [folder, *folder.parents]
    results = next((one for one in above if (one / MADE_BY_FILE).is_file()), None)
    if results is None:
        return None
    known = made_by(results)
    return next((known[one].hardware for one in above if one in known and known[one].hardware), None)


def recorded_hardware(folder: Path) -> str:
    """Return the hardware for a figure's caption, or NOT_RECORDED."""
    return hardware_of(folder.resolve()) or NOT_RECORDED
