"""`results/made_by.yaml`: which pages make the files of each folder of results, and what its rows ran on."""

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
    """What the rows here and in the folders below were measured on, where no file of rows says it."""


@cache
def made_by(results: Path) -> dict[Path, Made]:
    """Every folder that made_by.yaml in `results` names.

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
    """The hardware that made_by.yaml names for a folder or the nearest one above it; None if it has none."""
    above = [folder, *folder.parents]
    results = next((one for one in above if (one / MADE_BY_FILE).is_file()), None)
    if results is None:
        return None
    known = made_by(results)
    return next((known[one].hardware for one in above if one in known and known[one].hardware), None)


def recorded_hardware(folder: Path) -> str:
    """The hardware for a figure's caption; says so where there is none."""
    return hardware_of(folder.resolve()) or NOT_RECORDED
