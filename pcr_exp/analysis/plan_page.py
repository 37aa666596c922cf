"""Tables and figures of a planned cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, StrMethodFormatter

from pcr_exp.analysis.caption import Caption, describe_storage
from pcr_exp.analysis.figure import (
    BELOW,
    LEGEND_LINE_IN,
    enlarge,
    note,
    panel_title,
    panels,
    rate_axis,
    save_figure,
    ticks_in_bytes,
)
from pcr_exp.analysis.plan import (
    GB,
    affordable,
    knee_image_bytes,
    predict,
    roofline_images_per_s,
    worker_counts,
)
from pcr_exp.analysis.style import INK, MUTED, describe_scan, level_of, scan_levels, style
from pcr_exp.analysis.tables import kilobytes, markdown_table, three_figures
from pcr_exp.config.throughput import PlanConfig
from pcr_exp.system import MIB
from pcr_exp.system.words import counted


def draw_roofline(predictions: pd.DataFrame) -> Figure:
    """Draw one panel per model of `plan.predict` at one number of workers, for storage with a bandwidth.

    The line is min(compute, W / bytes), including seeks if the storage has some. Its knee is marked unless
    seeks alone limit compute. Points are predictions of scan levels; they lie below the line where decoding
    or requests are the limit. Both axes are logarithmic.
    """
    return _panel_per_model(predictions, _draw_roofline)


def _panel_per_model(predictions: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame, str], None]) -> Figure:
    with style():
        models = list(dict.fromkeys(predictions["model"]))
        figure, axes = panels(len(models))
        enlarge(figure, height_in=4 * LEGEND_LINE_IN)
        for ax, model in zip(axes, models, strict=True):
            draw(ax, predictions[predictions["model"] == model], model)
    return figure


def _draw_roofline(ax: Axes, levels: pd.DataFrame, model: str) -> None:
    first = levels.iloc[0]
    compute = float(first["compute_images_per_s"])
    limits = {
        "bandwidth_bytes_per_s": float(first["bandwidth_mib_per_s"]) * MIB,
        "compute_images_per_s": compute,
        "seek_s_per_image": float(first["seek_s_per_image"]),
    }
    knee = knee_image_bytes(**limits)
    shown = [*levels["image_bytes"], *([knee] if knee > 0 else [])]
    low, high = min(shown) / 1.6, max(shown) * 1.6
    sizes = np.geomspace(low, high, 200)
    roof = [roofline_images_per_s(size, **limits) for size in sizes]
    ax.plot(sizes, roof, color=MUTED, linewidth=1.4, zorder=2)
    if knee > 0:
        _mark_knee(ax, knee, compute)
    for row in levels.to_dict("records"):
        ax.plot(
            row["image_bytes"],
            row["images_per_s"],
            marker=level_of(row).marker,
            color=level_of(row).color,
            markeredgecolor="white",
            markersize=8,
            linestyle="none",
            zorder=4,
            label=f"{level_of(row).words} · {kilobytes(row['image_bytes'])} · {row['bound']}",
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    top = compute * 1.5
    ax.set_ylim(min(levels["images_per_s"].min(), roof[-1]) / 2.2, top)
    ticks_in_bytes(ax.xaxis, low, high)
    rate_axis(ax.yaxis)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel("images/s (log scale)")
    ax.legend(**BELOW, ncols=2, title="scan · bytes per image · limit", alignment="left")
    seek_ms = 1e3 * limits["seek_s_per_image"]
    seeks = f", {seek_ms:.2g} ms of seeks per image" if seek_ms else ""
    workers, bandwidth = counted(int(first["workers"]), "worker"), first["bandwidth_mib_per_s"]
    panel_title(ax, f"roofline · {model}", f"predicted; {workers}, W = {bandwidth:,.0f} MiB/s{seeks}")


def _mark_knee(ax: Axes, knee: float, compute: float) -> None:
    ax.plot(knee, compute, marker="x", color=INK, markersize=8, markeredgewidth=1.8, zorder=5)
    note(ax, f"knee: {kilobytes(knee)}", (knee, compute), (0, 9), ha="center", fontsize=8.5)


def draw_workers(predictions: pd.DataFrame) -> Figure:
    """Draw one panel per model of `plan.predict` over numbers of workers; both axes are logarithmic.

    Lines are images/s of all workers, per scan level; the thin line is what the accelerators could train. The
    number above each worker count is the highest affordable scan group (`plan.affordable`), in brackets if
    accelerators wait at every group.
    """
    return _panel_per_model(predictions, _draw_workers)


def _draw_workers(ax: Axes, rows: pd.DataFrame, model: str) -> None:
    counts = sorted(rows["workers"].unique())
    compute = rows.groupby("workers")["compute_images_per_s"].first()
    ax.plot(compute.index, compute, color=MUTED, linewidth=1, zorder=2, label="what accelerators train")
    for level, of_level in scan_levels(rows):
        growing = of_level.sort_values("workers")
        ax.plot(
            growing["workers"],
            growing["images_per_s"],
            color=level.color,
            linestyle=level.dashes,
            marker=level.marker,
            markeredgecolor="white",
            markeredgewidth=0.7,
            zorder=3,
            label=f"{level.words} · {kilobytes(growing['image_bytes'].iloc[0])}",
        )
    _name_affordable(ax, rows)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(counts[0] / 1.4, counts[-1] * 1.4)
    ax.set_ylim(top=float(compute.max()) * 3)
    ax.xaxis.set_major_locator(FixedLocator(counts))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_xlabel("workers on one storage system (log scale)")
    ax.set_ylabel("images/s (log scale)")
    ax.tick_params(axis="x", labelsize=7.5)
    ax.legend(**BELOW, ncols=2)
    bandwidth = rows["bandwidth_mib_per_s"].iloc[0]
    facts = f"predicted; W = {bandwidth:,.0f} MiB/s\non top: the highest scan group that so many can afford"
    panel_title(ax, f"workers · {model}", facts)


def _name_affordable(ax: Axes, rows: pd.DataFrame) -> None:
    for row in affordable(rows).to_dict("records"):
        number, color = (f"({row['group']:g})", MUTED) if row["waits"] else (f"{row['group']:g}", INK)
        look = {"ha": "center", "fontsize": 8.5, "fontweight": "bold", "color": color}
        note(ax, number, (row["workers"], 1), (0, -11), ("data", "axes fraction"), **look)


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
"""Table headers that appear only if some row has a value other than 0 in this column."""


def report_plan(plan: PlanConfig) -> list[Path]:
    """Write predictions.csv, predictions.md and the figures into `plan.out`; return all files.

    Figures are drawn only for storage with a bandwidth; without one there is no roofline.

    Raises:
        ConfigError, RecordError: as in `predict`.
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
        caption = caption_of(plan, "Predicted roofline")
        figures += save_figure(draw_roofline, predictions, out, "roofline", caption)
        caption = caption_of(plan, "Predicted images/s over workers")
        figures += save_figure(draw_workers, growing, out, "workers", caption)
    return [*tables, *figures]


def caption_of(plan: PlanConfig, shows: str) -> Caption:
    """Return the caption of a figure of a plan's predictions."""
    models = ", ".join(plan.model_images_per_s)
    return Caption(
        shows=shows,
        of=(f"{plan.name}: {plan.data.name} · {models} · {_SIZE}",),
        n="n = 0: predicted from rates, not measured",
        hardware=f"{plan.workers:,} x {plan.cores_per_worker:g} cores",
        storage=describe_storage({"storage": asdict(plan.storage)}),
    )


def to_markdown(plan: PlanConfig, predictions: pd.DataFrame, growing: pd.DataFrame) -> str:
    """Return Markdown with a table per model, and the scan group that each number of workers can afford."""
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
    "scan": lambda row: describe_scan(row["scan"]),
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
    "scan": lambda row: describe_scan(row["scan"]),
    "images/s": _rate("images_per_s"),
    "limit": lambda row: row["limit"],
}
