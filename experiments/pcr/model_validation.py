"""Validation of the throughput model: rates of processes that share a storage, and the times of runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from pcr_exp.analysis.frame import GROUP_KEYS, LEVEL, RUN_IDENTITY, first_reached
from pcr_exp.analysis.plan import bandwidth_images_per_s, fill_s, images_per_s, predict, time_to_accuracy_s
from pcr_exp.analysis.tables import reading, require_columns
from pcr_exp.analysis.throughput import UNLIMITED
from pcr_exp.config.describe import group_number
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.scan import scan_of
from pcr_exp.config.throughput import PlanConfig, PlannedDataConfig
from pcr_exp.errors import RunError
from pcr_exp.system import MIB
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
"""`images_per_s` is the steady rate of all processes together, `slowest_images_per_s` the slowest one's.
`cpu_s_per_image` includes opening the loaders."""
REMEDY = "Measure into another folder (out=...), or delete this one."
CASE = ["num_processes", "storage", "model_images_per_s", "scan", "decode"]
"""Columns in which the repeats of one cell agree."""
RATE_TOLERANCE = 0.05
"""Maximum relative error of a predicted rate, declared beforehand."""
_PRETENDED = "pretended"


@dataclass(frozen=True, slots=True)
class Validation:
    """All measurements in a folder."""

    rows: pd.DataFrame
    """ROW_COLUMNS."""
    meta: dict[str, Any]
    """`settings`, `num_cores`, `cpu`, and `measurements`: command, commit and time of each."""


_SAME = ("cpu", "num_cores", "kernel", "packages")
"""Facts about the machine in which all repeats of a measurement must agree."""


def add_validation(folder: str | Path, rows: pd.DataFrame, settings: Mapping[str, Any]) -> None:
    """Add rows to those of a folder, with repeats numbered onwards. The JSON file is written last.

    Raises:
        RunError: earlier rows were measured with other settings or on another machine, or are damaged.
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
    """Load what `add_validation` wrote.

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
    """Return a row per cell (CASE) of ROW_COLUMNS: predicted, measured (median, min, max, n), and the error.

    The prediction is from `plan.predict`, with one worker per process. The decoding rate of one process is
    measured, in the cell with one process, no limit and no model. That cell would predict itself, so
    `is_calibration` marks it to be left out. More processes share the machine's cores, which decode at most
    num_cores / (CPU seconds per image of that cell). `error` is predicted / measured - 1.

    Raises:
        RunError: a scan level lacks such a cell.
    """
    free = _is_calibration(rows)
    own = _calibrate(rows, free)
    cells = []
    for case, cell in rows.groupby(CASE, sort=False, dropna=False):
        first, measured = cell.iloc[0], cell["images_per_s"]
        level, predicted = scan_of(first["scan"]), _predict(first, own, num_cores)
        cells.append(
            {
                **dict(zip(CASE, case, strict=True)),
                "encoding": level.encoding,
                "group": group_number(level.encoding, level.group),
                "image_bytes": first["image_bytes"],
                "n": len(cell),
                "predicted_images_per_s": predicted["images_per_s"],
                "bound": predicted["bound"],
                "requests_in_flight": predicted["requests_in_flight"],
                **{f"images_per_s_{part}": measured.agg(part) for part in ("median", "min", "max")},
                "error": predicted["images_per_s"] / measured.median() - 1,
                "is_calibration": bool(free.loc[cell.index].all()),
            }
        )
    return pd.DataFrame(cells)


def _is_calibration(rows: pd.DataFrame) -> pd.Series:
    alone = rows["num_processes"] == 1
    return alone & (rows["storage"] == UNLIMITED) & rows["model_images_per_s"].isna()


def _calibrate(rows: pd.DataFrame, free: pd.Series) -> pd.DataFrame:
    """Return median images_per_s and cpu_s_per_image of one process without limits, by scan and decoding."""
    levels = set(zip(rows["scan"], rows["decode"], strict=True))
    measured = set(zip(rows.loc[free, "scan"], rows.loc[free, "decode"], strict=True))
    missing = [f"{scan} ({decode})" for scan, decode in sorted(levels - measured)]
    if missing:
        raise RunError(
            f"no rate of one process without limits was measured for {', '.join(missing)}: it says what "
            "decoding allows. Measure it with processes=[1]."
        )
    return rows[free].groupby(["scan", "decode"])[["images_per_s", "cpu_s_per_image"]].median()


def _predict(cell: pd.Series, own: pd.DataFrame, num_cores: int) -> pd.Series:
    count, model = int(cell["num_processes"]), cell["model_images_per_s"]
    free = own.loc[(cell["scan"], cell["decode"])]
    decode = min(free["images_per_s"], num_cores / count / free["cpu_s_per_image"])
    plan = PlanConfig(
        name="this_machine",
        workers=count,
        cores_per_worker=1,
        model_images_per_s={_PRETENDED: math.inf if math.isnan(model) else model},
        decode_images_per_s={"baseline": decode, cell["scan"]: decode},
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


REFERENCE_GROUP = 1
"""Scan group whose runs show what compute and decoding allow, since storage limits it least."""

TIME_TOLERANCE = 0.10
"""Maximum relative error of a predicted time, declared beforehand."""

TIME_COLUMNS = [
    *("run_id", *GROUP_KEYS, *LEVEL, "seed", "target_score", "headline", "mean_image_bytes"),
    *("epochs_to_accuracy", "num_train", "compute_images_per_s", "bandwidth_images_per_s"),
    *("predicted_images_per_s", "bound", "images_per_s", "start_s", "predicted_s", "measured_s", "error"),
]


def predict_times(runs: pd.DataFrame) -> pd.DataFrame:
    """Return TIME_COLUMNS from `run_frame`: predicted and measured seconds per run that reached its target.

    Seconds are train_s + wait_s. `epochs_to_accuracy` are the run's own. The rest of the prediction uses its
    bytes, its storage's bandwidth and seeks, its shuffle window, and compute. Compute is images/s after the
    first train row of the REFERENCE_GROUP runs of the same setting, averaged over seeds. Left out are runs of
    REFERENCE_GROUP itself, settings without any or without a bandwidth, and runs whose timing is excluded.
    `error` is predicted / measured - 1.
    """
    rows = []
    for _, setting in runs[runs["timing_excluded_because"] == ""].groupby([*GROUP_KEYS, "timing"], sort=True):
        is_reference = (setting["encoding"] != "baseline") & (setting["group"] == REFERENCE_GROUP)
        limited = setting["bandwidth_mib_per_s"].notna() & ~is_reference
        reached = setting[limited & setting["time_to_target_s"].notna()]
        if is_reference.any():
            compute = fmean(map(steady_images_per_s, setting.loc[is_reference, "rows"]))
            rows += [_predict_time(run, compute) for run in reached.to_dict("records")]
    return pd.DataFrame(rows, columns=TIME_COLUMNS)


def steady_images_per_s(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return images/s over training and data wait, from the first train row to the last row."""
    first, last = next(row for row in rows if row["kind"] == "train"), rows[-1]
    busy_s = sum(last[key] - first[key] for key in ("train_s", "wait_s"))
    return (last["samples_seen"] - first["samples_seen"]) / busy_s


def _predict_time(run: Mapping[Any, Any], compute: float) -> dict[str, Any]:
    reached, config = first_reached(run["rows"], run["target_score"]), run["config"]
    assert reached is not None  # it has a time to the target
    num_train = reached["samples_seen"] / reached["epoch"]
    images_per_record = config["dataset"]["images_per_record"]
    limits = {
        "compute": compute,
        "bandwidth": bandwidth_images_per_s(
            run["bandwidth_mib_per_s"] * MIB,
            run["mean_image_bytes"],
            seek_s_per_image=run["seek_ms"] / 1e3 / images_per_record,
        ),
    }
    rate, bound = images_per_s(limits)
    loader = config["loader"]
    # The first batch draws on the windows of all lanes. The validated runs had one lane and lack the key.
    at_first = loader.get("lanes", 1) * loader["shuffle_records"] * images_per_record
    start_s = fill_s(min(at_first, num_train), limits)
    predicted_s = time_to_accuracy_s(reached["epoch"], num_train, rate, start_s=start_s)
    return {
        **{key: run[key] for key in RUN_IDENTITY if key in TIME_COLUMNS},
        "epochs_to_accuracy": reached["epoch"],
        "num_train": num_train,
        **{f"{limit}_images_per_s": value for limit, value in limits.items()},
        "predicted_images_per_s": rate,
        "bound": bound,
        "images_per_s": steady_images_per_s(run["rows"]),
        "start_s": start_s,
        "predicted_s": predicted_s,
        "measured_s": run["time_to_target_s"],
        "error": predicted_s / run["time_to_target_s"] - 1,
    }
