"""A throughput measurement on disk: every row, the formats, and where they come from."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.measured_files import reading, require_columns
from pcr_exp.analysis.throughput.throughput import FORMAT_COLUMNS, ROW_COLUMNS
from pcr_exp.runs.manifest import utc_now
from pcr_exp.system import provenance
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.training.device import num_cores

ROWS_FILE = "throughput.csv"
FORMATS_FILE = "formats.csv"
META_FILE = "throughput.json"
REMEDY = "Measure it again with `python -m experiments.throughput`."


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one run measured."""

    rows: pd.DataFrame
    """ROW_COLUMNS."""
    formats: pd.DataFrame
    """FORMAT_COLUMNS."""
    absent: dict[str, str]
    """Loaders that were asked for and not measured, with the reason."""
    meta: dict[str, Any]


def write_throughput(
    folder: str | Path,
    rows: pd.DataFrame,
    formats: pd.DataFrame,
    absent: Mapping[str, str],
    settings: Mapping[str, Any],
) -> None:
    """Write throughput.csv, formats.csv and throughput.json; the json last: a folder that has it is whole."""
    folder = Path(folder)
    make_folder(folder)
    git_sha, git_dirty = provenance.git_state()
    meta = {
        "absent": dict(absent),
        "settings": dict(settings),
        "command": provenance.command_line(),
        "git_sha": git_sha,
        "git_dirty": git_dirty,
        "packages": provenance.package_versions(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpu": provenance.cpu_model(),
        "num_cores": num_cores(),
        "measured_at": utc_now(),
    }
    write_atomic(folder / ROWS_FILE, [rows[ROW_COLUMNS].to_csv(index=False).encode()])
    write_atomic(folder / FORMATS_FILE, [formats[FORMAT_COLUMNS].to_csv(index=False).encode()])
    write_atomic(folder / META_FILE, [json.dumps(meta, indent=2).encode() + b"\n"])


def load_throughput(folder: str | Path) -> Throughput:
    """What `write_throughput` wrote.

    Raises:
        RunError: there is none, or it is damaged or of another version.
    """
    folder = Path(folder)
    with reading(folder, REMEDY):
        meta = json.loads((folder / META_FILE).read_text())
        rows = pd.read_csv(folder / ROWS_FILE)
        formats = pd.read_csv(folder / FORMATS_FILE)
        absent = meta["absent"]
    require_columns(folder / ROWS_FILE, rows, ROW_COLUMNS, REMEDY)
    require_columns(folder / FORMATS_FILE, formats, FORMAT_COLUMNS, REMEDY)
    return Throughput(rows, formats, absent, meta)
