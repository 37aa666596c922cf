"""Measured rates of processes that share a storage, on disk, and the throughput model beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.plan import predict
from pcr_exp.analysis.tables import reading, require_columns
from pcr_exp.analysis.throughput import UNLIMITED
from pcr_exp.config.describe import group_number
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.scan import scan_of
from pcr_exp.config.throughput import PlanConfig, PlannedDataConfig
from pcr_exp.errors import RunError
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import machine, occasion, write_json

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
CASE = ["num_processes", "storage", "model_images_per_s", "scan"]
"""What repeats of one cell share."""
TOLERANCE = 0.05
"""The share by which a prediction may miss the measured rate: declared beforehand."""
_PRETENDED = "pretended"


@dataclass(frozen=True, slots=True)
class Validation:
    """All that was measured into a folder."""

    rows: pd.DataFrame
    """ROW_COLUMNS."""
    meta: dict[str, Any]
    """`settings`, `num_cores`, `cpu`, and `measurements`: command, commit and time of each."""


_SAME = ("cpu", "num_cores", "kernel", "packages")
"""What all repeats of a measurement must have run on."""


def add_validation(folder: str | Path, rows: pd.DataFrame, settings: Mapping[str, Any]) -> None:
    """Add rows to those of the folder; their repeats are counted on. The json comes last.

    Raises:
        RunError: what is there was measured with other settings or on another machine, or is damaged.
    """
    folder = Path(folder)
    ran_on = machine()
    decides = {"settings": dict(settings), **{key: ran_on[key] for key in _SAME}}
    measurements: list[dict[str, Any]] = []
    rows = rows[ROW_COLUMNS]
    if (folder / META_FILE).exists():
        before = load_validation(folder)
        if differing := [key for key, value in decides.items() if before.meta[key] != value]:
            raise RunError(
                f"{folder} holds measurements that differ in {', '.join(differing)}: wanted the same for all "
                f"repeats. {REMEDY}"
            )
        measurements = before.meta["measurements"]
        highest = before.rows.groupby("num_processes")["repeat"].max()
        begun = rows["num_processes"].map(highest).fillna(-1).astype(int) + 1
        rows = pd.concat([before.rows, rows.assign(repeat=rows["repeat"] + begun)], ignore_index=True)
    measurements.append(occasion())
    make_folder(folder)
    write_atomic(folder / ROWS_FILE, [rows.to_csv(index=False).encode()])
    write_json(folder / META_FILE, {**decides, "measurements": measurements})


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


def compare(rows: pd.DataFrame, num_cores: int) -> pd.DataFrame:
    """One row per cell (CASE) of ROW_COLUMNS: predicted, measured (median, min, max, n), and the error.

    The prediction is that of `plan.predict` for as many workers as there are processes. What one process
    decodes is measured: the cell of one process, no limit and no model, which is a prediction of itself and
    therefore left out (`is_calibration`). More processes share the machine's cores, which decode at most
    num_cores / (CPU seconds per image of that cell). `error` is predicted / measured - 1.

    Raises:
        RunError: there is no such cell for some scan level.
    """
    free = _is_calibration(rows)
    own = _calibrate(rows, free)
    cells = []
    for (count, storage, model, scan), cell in rows.groupby(CASE, sort=False, dropna=False):
        measured, level = cell["images_per_s"], scan_of(str(scan))
        predicted = _predict(cell.iloc[0], own, num_cores)
        cells.append(
            {
                "num_processes": count,
                "storage": storage,
                "model_images_per_s": model,
                "scan": scan,
                "encoding": level.encoding,
                "group": group_number(level.encoding, level.group),
                "image_bytes": cell["image_bytes"].iloc[0],
                "n": len(cell),
                "predicted_images_per_s": predicted["images_per_s"],
                "bound": predicted["bound"],
                "requests_in_flight": predicted["requests_in_flight"],
                "images_per_s_median": measured.median(),
                "images_per_s_min": measured.min(),
                "images_per_s_max": measured.max(),
                "error": predicted["images_per_s"] / measured.median() - 1,
                "is_calibration": bool(free.loc[cell.index].all()),
            }
        )
    return pd.DataFrame(cells)


def _is_calibration(rows: pd.DataFrame) -> pd.Series:
    alone = rows["num_processes"] == 1
    return alone & (rows["storage"] == UNLIMITED) & rows["model_images_per_s"].isna()


def _calibrate(rows: pd.DataFrame, free: pd.Series) -> pd.DataFrame:
    """images_per_s and cpu_s_per_image of one free process, medians, by scan."""
    missing = sorted(set(rows["scan"]) - set(rows.loc[free, "scan"]))
    if missing:
        raise RunError(
            f"no rate of one process without limits was measured for {', '.join(missing)}: it says what "
            "decoding allows. Measure it with processes=[1]."
        )
    return rows[free].groupby("scan")[["images_per_s", "cpu_s_per_image"]].median()


def _predict(cell: pd.Series, own: pd.DataFrame, num_cores: int) -> pd.Series:
    count, model = int(cell["num_processes"]), cell["model_images_per_s"]
    decode = {
        scan: min(free["images_per_s"], num_cores / count / free["cpu_s_per_image"])
        for scan, free in own.to_dict("index").items()
    }
    plan = PlanConfig(
        name="this_machine",
        workers=count,
        cores_per_worker=1,
        model_images_per_s={_PRETENDED: math.inf if math.isnan(model) else model},
        decode_images_per_s={"baseline": decode[cell["scan"]], cell["scan"]: decode[cell["scan"]]},
        storage=StorageConfig(
            name=cell["storage"],
            bandwidth_mib_per_s=_limit(cell["bandwidth_mib_per_s"]),
            latency_ms=cell["latency_ms"],
            requests_per_s=_limit(cell["requests_per_s"]),
        ),
        data=PlannedDataConfig(
            name="measured",
            num_images=1,
            images_per_record=round(cell["images_per_record"]),
            image_bytes={"baseline": cell["image_bytes"], cell["scan"]: cell["image_bytes"]},
        ),
    )
    predictions = predict(plan, [count])
    return predictions[predictions["scan"] == cell["scan"]].iloc[0]


def _limit(value: float) -> float | None:
    return None if math.isnan(value) else value
