"""Measured rates of processes that share a storage, on disk: every row, and where it comes from."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.measured_files import reading, require_columns
from pcr_exp.errors import RunError
from pcr_exp.runs.manifest import utc_now
from pcr_exp.system import provenance
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.training.device import num_cores

ROWS_FILE = "validation_rows.csv"
META_FILE = "validation.json"
ROW_COLUMNS = [
    *("repeat", "num_processes", "scan", "decode", "storage"),
    *("bandwidth_mib_per_s", "latency_ms", "requests_per_s", "model_images_per_s"),
    *("image_bytes", "images_per_record"),
    *("images_per_s", "slowest_images_per_s", "num_images", "cpu_s_per_image"),
]
"""`images_per_s` is of all processes together, in a steady state; `slowest_images_per_s` of the one that got
least; `cpu_s_per_image` includes opening the loaders."""
REMEDY = "Measure into another folder (out=...), or delete this one."


@dataclass(frozen=True, slots=True)
class Validation:
    """All that was measured into a folder."""

    rows: pd.DataFrame
    """ROW_COLUMNS."""
    meta: dict[str, Any]
    """`settings`, `num_cores`, `cpu`, and `measurements`: command, commit and time of each."""


def add_validation(folder: str | Path, rows: pd.DataFrame, settings: Mapping[str, Any]) -> None:
    """Add rows to those of the folder; their repeats are counted on. The json comes last.

    Raises:
        RunError: what is there was measured with other settings or on another machine, or is damaged.
    """
    folder = Path(folder)
    machine = {
        "settings": dict(settings),
        "cpu": provenance.cpu_model(),
        "num_cores": num_cores(),
        "kernel": platform.release(),
        "packages": provenance.package_versions(),
    }
    measurements: list[dict[str, Any]] = []
    rows = rows[ROW_COLUMNS]
    if (folder / META_FILE).exists():
        before = load_validation(folder)
        there = {key: before.meta[key] for key in machine}
        if there != machine:
            differing = [key for key in machine if machine[key] != there[key]]
            raise RunError(
                f"{folder} holds measurements that differ in {', '.join(differing)}: wanted the same for all "
                f"repeats. {REMEDY}"
            )
        measurements = before.meta["measurements"]
        highest = before.rows.groupby("num_processes")["repeat"].max()
        begun = rows["num_processes"].map(highest).fillna(-1).astype(int) + 1
        rows = pd.concat([before.rows, rows.assign(repeat=rows["repeat"] + begun)], ignore_index=True)
    git_sha, git_dirty = provenance.git_state()
    measurements.append(
        {
            "command": provenance.command_line(),
            "git_sha": git_sha,
            "git_dirty": git_dirty,
            "measured_at": utc_now(),
        }
    )
    make_folder(folder)
    write_atomic(folder / ROWS_FILE, [rows.to_csv(index=False).encode()])
    meta = {**machine, "measurements": measurements}
    write_atomic(folder / META_FILE, [json.dumps(meta, indent=2).encode() + b"\n"])


def load_validation(folder: str | Path) -> Validation:
    """What `add_validation` wrote.

    Raises:
        RunError: there is none, or it is damaged or of another version.
    """
    folder = Path(folder)
    with reading(folder, REMEDY):
        meta = json.loads((folder / META_FILE).read_text())
        rows = pd.read_csv(folder / ROWS_FILE)
    require_columns(folder / ROWS_FILE, rows, ROW_COLUMNS, REMEDY)
    return Validation(rows, meta)
