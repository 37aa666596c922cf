"""The throughput model against measured rates of processes that share a storage."""

from __future__ import annotations

import math

import pandas as pd

from pcr_exp.analysis.model.plan import predict
from pcr_exp.analysis.throughput.throughput import UNLIMITED
from pcr_exp.config.plan import PlanConfig, PlannedDataConfig
from pcr_exp.config.storage import StorageConfig
from pcr_exp.errors import RunError

CASE = ["num_processes", "storage", "model_images_per_s", "scan"]
"""What repeats of one cell share."""

TOLERANCE = 0.05
"""The share by which a prediction may miss the measured rate: declared beforehand."""

_PRETENDED = "pretended"


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
        measured = cell["images_per_s"]
        predicted = _predict(cell.iloc[0], own, num_cores)
        cells.append(
            {
                "num_processes": count,
                "storage": storage,
                "model_images_per_s": model,
                "scan": scan,
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
