"""Tables and figures of a planned cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.caption import Caption, storage_words
from pcr_exp.analysis.core.cells import kilobytes, markdown_table, three_figures
from pcr_exp.analysis.core.figure import save_figure
from pcr_exp.analysis.core.look import scan_words
from pcr_exp.analysis.model.cost import GB
from pcr_exp.analysis.model.figures import draw_roofline, draw_workers
from pcr_exp.analysis.model.plan import affordable, predict, worker_counts
from pcr_exp.config.throughput import PlanConfig

PREDICTIONS_FILE = "predictions.csv"
TABLE_FILE = "predictions.md"
_SIZE = "input px of the plan's rates"
_FILLED_WHERE = {
    "hours to accuracy": "hours_to_accuracy",
    "GB/epoch": "dollars_per_epoch",
    "requests/epoch": "dollars_per_epoch",
    "$/epoch": "dollars_per_epoch",
    "$ to accuracy": "dollars_to_accuracy",
}
# Headers of the table that stand only where some row has this column, other than 0.


def report_plan(plan: PlanConfig) -> list[Path]:
    """Write predictions.csv, predictions.md and the figures into `plan.out`; returns all files.

    The figures are drawn for storage with a bandwidth; without one there is no roofline.

    Raises:
        ConfigError, RecordError: as `predict`.
    """
    out = Path(plan.out)
    predictions = predict(plan, [plan.workers])
    growing = predict(plan, worker_counts(plan.max_workers))
    out.mkdir(parents=True, exist_ok=True)
    tables = [out / PREDICTIONS_FILE, out / TABLE_FILE]
    predictions.to_csv(tables[0], index=False)
    tables[1].write_text(to_markdown(plan, predictions, growing))
    figures: list[Path] = []
    if plan.storage.bandwidth_mib_per_s is not None:
        figures += save_figure(
            draw_roofline(predictions), predictions, out, "roofline", caption_of(plan, "Predicted roofline")
        )
        figures += save_figure(
            draw_workers(growing),
            growing,
            out,
            "workers",
            caption_of(plan, "Predicted images/s over workers"),
        )
    return [*tables, *figures]


def caption_of(plan: PlanConfig, shows: str) -> Caption:
    """What a figure of a plan's predictions says of itself."""
    models = ", ".join(plan.model_images_per_s)
    return Caption(
        shows=shows,
        of=(f"{plan.name}: {plan.data.name} · {models} · {_SIZE}",),
        n="n = 0: predicted from rates, not measured",
        hardware=f"{plan.workers:,} x {plan.cores_per_worker:g} cores",
        storage=storage_words({"storage": asdict(plan.storage)}),
    )


def to_markdown(plan: PlanConfig, predictions: pd.DataFrame, growing: pd.DataFrame) -> str:
    """A table per model, and which scan group each number of workers can afford."""
    parts = [f"{_facts(plan)} Predicted, not measured."]
    for model, rows in predictions.groupby("model", sort=False):
        lines = markdown_table(rows, {name: cell for name, cell in _COLUMNS.items() if _filled(name, rows)})
        parts.append(f"### {plan.name} · {model}\n\n{lines}")
    best = affordable(growing)
    best["limit"] = best["waits"].map({True: "storage or decoding: accelerators wait", False: "accelerators"})
    for model, rows in best.groupby("model", sort=False):
        lines = markdown_table(rows, _AFFORDABLE)
        parts.append(f"### {model}: the highest scan group that so many workers can afford\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _facts(plan: PlanConfig) -> str:
    storage = plan.storage
    limits = [f"{storage.seek_ms:g} ms per seek"] if storage.seek_ms else []
    if storage.latency_ms or not limits:
        limits.insert(0, f"{storage.latency_ms:g} ms per request")
    if storage.bandwidth_mib_per_s is not None:
        limits.insert(0, f"{storage.bandwidth_mib_per_s:g} MiB/s")
    if storage.requests_per_s is not None:
        limits.append(f"{storage.requests_per_s:g} requests/s")
    prices = [
        f"${cost:g} per {unit}"
        for cost, unit in ((plan.cost_per_gb, "GB"), (plan.cost_per_1000_requests, "1,000 requests"))
        if cost
    ]
    billed = f" Every epoch is read from the storage, at {' and '.join(prices)}." if prices else ""
    return (
        f"{plan.workers} worker{'s' if plan.workers != 1 else ''} of {plan.cores_per_worker:g} cores on one "
        f"storage system, {storage.name} ({', '.join(limits)}), training on {plan.data.name}. "
        "In images/s of all workers: what storage, decoding and accelerators allow, and what comes of it."
        f"{billed}"
    )


def _filled(name: str, rows: pd.DataFrame) -> bool:
    return name not in _FILLED_WHERE or bool(rows[_FILLED_WHERE[name]].fillna(0).any())


def _rate(column: str) -> Any:
    def cell(row: Mapping[Any, Any]) -> str:
        return three_figures(row[column])

    return cell


_COLUMNS = {
    "scan": lambda row: scan_words(row["scan"]),
    "bytes per image": lambda row: kilobytes(row["image_bytes"]),
    "storage": lambda row: three_figures(
        min(row["bandwidth_images_per_s"], row["requests_images_per_s"], row["in_flight_images_per_s"])
    ),
    "decode": _rate("decode_images_per_s"),
    "compute": _rate("compute_images_per_s"),
    "images/s": _rate("images_per_s"),
    "limit": lambda row: row["bound"].replace("_", " "),
    "speed-up": lambda row: f"{row['speedup_over_baseline']:.2f} x",
    "epochs/h": _rate("epochs_per_h"),
    "hours to accuracy": _rate("hours_to_accuracy"),
    "GB/epoch": lambda row: three_figures(row["bytes_per_epoch"] / GB),
    "requests/epoch": lambda row: f"{row['requests_per_epoch']:,}",
    "$/epoch": _rate("dollars_per_epoch"),
    "$ to accuracy": _rate("dollars_to_accuracy"),
}

_AFFORDABLE = {
    "workers": lambda row: f"{row['workers']:,}",
    "scan": lambda row: scan_words(row["scan"]),
    "images/s": _rate("images_per_s"),
    "limit": lambda row: row["limit"],
}
