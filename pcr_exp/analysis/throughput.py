"""A throughput measurement on disk, and its repeats as one line per loader."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.tables import reading, require_columns
from pcr_exp.system import MIB
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import write_measured

CASE = ["loader", "decode", "storage", "model_images_per_s", "cores"]
"""Columns that repeats of a measurement share."""

LIMITS = ["bandwidth_mib_per_s", "latency_ms", "requests_per_s"]

MEASURES = ["images_per_s", "mib_per_s", "cpu_s_per_image", "wait_share", "first_batch_s"]

BOUND = ["bound_images_per_s", "bound_cpu_s_per_image"]
"""Rates of decoding and cropping alone, around a measurement of ours; empty where not measured."""

ROW_COLUMNS = [
    *("repeat", *CASE, *LIMITS),
    *("num_epochs", "num_images", "total_s", *MEASURES),
    *("epoch_bytes", "num_files", "cached_share"),
    *BOUND,
]
"""One row per measurement.

`images_per_s` counts whole epochs in the middle of a stream, neither the loader's start (`first_batch_s`) nor
its end; where BOUND is empty it counts from opening the loader. `cores` is how many the loader was confined
to, nothing for all. `wait_share` is the share of time in which the consumer had no batch. `epoch_bytes` is
what one epoch reads. `cached_share` is how much of the files lay in the page cache before, nothing where the
kernel did not tell."""

FORMAT_COLUMNS = ["format", "num_images", "num_files", "num_bytes", "build_s", "build_cpu_s"]

REFERENCE = "image_folder_pil"
"""The loader that ratios are taken to: what most people use."""

UNLIMITED = "unlimited"
ROWS_FILE = "throughput.csv"
FORMATS_FILE = "formats.csv"
META_FILE = "throughput.json"
REMEDY = "Measure it again with `python -m experiments.throughput`."


def summarise_throughput(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per CASE, in the order of first measurement: n, then median, min and max of each of MEASURES.

    `ratio_*` are images/s over REFERENCE's in the same repeat, for lines that are unlimited and as fast as
    they go; NaN for others, and without that loader. `bound_share_*` are images/s over those of decoding and
    cropping alone in the same repeat; `cores_ratio_*` those on all cores over those on this number of cores.
    `image_bytes` are an epoch's bytes per image.
    """
    rows = rows.assign(
        ratio=_ratios(rows),
        bound_share=rows["images_per_s"] / rows["bound_images_per_s"].astype(float),
        cores_ratio=_cores_ratios(rows),
        image_bytes=rows["epoch_bytes"] * rows["num_epochs"] / rows["num_images"],
    )
    by_case = rows.groupby(CASE, sort=False, dropna=False)
    columns: dict[str, pd.Series] = {"n": by_case.size()}
    for name in [*LIMITS, "epoch_bytes", "image_bytes", "num_files"]:
        columns[name] = by_case[name].first()
    for measure in [*MEASURES, *BOUND, "ratio", "bound_share", "cores_ratio"]:
        for statistic in ("median", "min", "max"):
            columns[f"{measure}_{statistic}"] = by_case[measure].agg(statistic)
    columns["cached_share_min"] = by_case["cached_share"].min()
    return pd.DataFrame(columns).reset_index()


def free_running(summary: pd.DataFrame) -> pd.DataFrame:
    """Lines of loaders from which batches were taken as fast as they came."""
    return summary[summary["model_images_per_s"].isna()]


def unlimited(summary: pd.DataFrame) -> pd.DataFrame:
    """Lines without a throttle."""
    return summary[summary["storage"] == UNLIMITED]


def bounds(summary: pd.DataFrame) -> pd.DataFrame:
    """Every free-running line with a bandwidth limit, and the `bound_images_per_s` that it cannot pass.

    min(what the same loader does without a limit, bandwidth / bytes per image): the model of the PCR paper,
    with decoding measured rather than modelled.
    """
    free = free_running(summary)
    compute = unlimited(free).set_index(["loader", "decode"])["images_per_s_median"]
    limited = free[free["bandwidth_mib_per_s"].notna()]
    rates = limited["bandwidth_mib_per_s"] * MIB / limited["image_bytes"]
    own = compute.reindex(pd.MultiIndex.from_frame(limited[["loader", "decode"]])).to_numpy()
    return limited.assign(bound_images_per_s=rates.clip(upper=pd.Series(own, index=limited.index)))


def _ratios(rows: pd.DataFrame) -> pd.Series:
    comparable = (rows["storage"] == UNLIMITED) & rows["model_images_per_s"].isna() & rows["cores"].isna()
    reference = rows[comparable & (rows["loader"] == REFERENCE)].set_index("repeat")["images_per_s"]
    return (rows["images_per_s"] / rows["repeat"].map(reference.to_dict())).where(comparable)


def _cores_ratios(rows: pd.DataFrame) -> pd.Series:
    """For lines confined to some cores: images/s of the same case on all cores, over theirs."""
    names = ["repeat", *(name for name in CASE if name != "cores")]
    cases = [
        tuple(None if pd.isna(value) else value for value in case)
        for case in rows[names].itertuples(index=False, name=None)
    ]
    alike = pd.Series(cases, index=rows.index)
    whole = rows["cores"].isna()
    on_all = dict(zip(alike[whole], rows.loc[whole, "images_per_s"], strict=True))
    ratios = [
        on_all.get(case, math.nan) / rate for case, rate in zip(cases, rows["images_per_s"], strict=True)
    ]
    return pd.Series(ratios, index=rows.index).where(~whole)


@dataclass(frozen=True, slots=True)
class Throughput:
    """A measurement of loaders, as read from its folder."""

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
    write_atomic(folder / ROWS_FILE, [rows[ROW_COLUMNS].to_csv(index=False).encode()])
    write_atomic(folder / FORMATS_FILE, [formats[FORMAT_COLUMNS].to_csv(index=False).encode()])
    write_measured(folder / META_FILE, {"absent": dict(absent), "settings": dict(settings)})


def load_throughput(folder: str | Path) -> Throughput:
    """Read a folder that `write_throughput` made.

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
