"""Tables and figures that compare the throughput model with measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, StrMethodFormatter

from experiments.pcr.model_validation import (
    RATE_TOLERANCE,
    TIME_TOLERANCE,
    Validation,
    compare,
    load_validation,
    predict_times,
)
from pcr_exp.analysis.caption import Caption, describe_hardware, of_runs
from pcr_exp.analysis.figure import (
    BELOW,
    draw_panels,
    enlarge,
    footer,
    note,
    panel_title,
    panels,
    rate_axis,
    save_figure,
    ticks_in_bytes,
)
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.plan import knee_image_bytes, roofline_images_per_s
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.style import MUTED, describe_scan, level_of, scan_levels, style
from pcr_exp.analysis.tables import kilobytes, markdown_table, median_cell, span, three_figures
from pcr_exp.system import MIB
from pcr_exp.system.provenance import describe_code


def draw_predicted_rates(cells: pd.DataFrame, tolerance: float) -> Figure:
    """Draw errors of `model_validation.compare` over predicted images/s, a panel per number of processes.

    Point: error against the median of the measured rates; bar: against the largest and the smallest.
    """
    cells = cells[~cells["is_calibration"]]
    found = []
    for count, rows in cells.groupby("num_processes"):
        within = int((rows["error"].abs() <= tolerance).sum())
        title = f"{count} process{'es' if count != 1 else ''}, one storage"
        words = f"{within} of {len(rows)} cells within {100 * tolerance:g} %, n = {rows['n'].min()}, median"
        found.append((title, words, rows))
    return draw_panels(found, partial(_draw_rates, tolerance=tolerance))


def _draw_rates(ax: Axes, rows: pd.DataFrame, tolerance: float) -> None:
    predicted = rows["predicted_images_per_s"]
    ax.vlines(
        predicted,
        predicted / rows["images_per_s_max"] - 1,
        predicted / rows["images_per_s_min"] - 1,
        color=[level_of(row).color for row in rows.to_dict("records")],
        linewidth=1.4,
        zorder=3,
    )
    _draw_errors(ax, rows, "predicted_images_per_s", tolerance)
    ax.set_xlabel("predicted images/s, all processes (log scale)")


def draw_predicted_times(times: pd.DataFrame, tolerance: float) -> Figure:
    """Draw one panel for all runs of `model_validation.predict_times`, with one point per run."""
    within = int((times["error"].abs() <= tolerance).sum())
    words = f"{within} of {len(times)} runs within {100 * tolerance:g} %; n = 1 each"

    def draw(ax: Axes, rows: pd.DataFrame) -> None:
        _draw_errors(ax, rows, "predicted_s", tolerance)
        ax.set_xlabel("predicted seconds to the target accuracy (log scale)")

    return draw_panels([("time to accuracy", words, times)], draw)


def _draw_errors(ax: Axes, rows: pd.DataFrame, x: str, tolerance: float) -> None:
    """Draw points by scan level, and the band of `tolerance` around zero error."""
    ax.axhspan(-tolerance, tolerance, color=MUTED, alpha=0.18, linewidth=0)
    ax.axhline(0, color=MUTED, linewidth=1, zorder=1)
    handles = []
    for level, of_level in scan_levels(rows):
        look: dict[str, Any] = {"marker": level.marker, "color": level.color, "markeredgecolor": "white"}
        ax.plot(of_level[x], of_level["error"], linestyle="none", markersize=7, zorder=4, **look)
        handles.append(Line2D([], [], linestyle="none", label=level.words, **look))
    low, high = rows[x].min() / 1.2, rows[x].max() * 1.2
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    _round_ticks(ax.xaxis, low, high)
    widest = max(2 * tolerance, 1.3 * rows["error"].abs().max())
    ax.set_ylim(-widest, widest)
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_ylabel("predicted / measured - 1")
    ax.legend(handles=handles, ncols=5, handletextpad=0.1, **BELOW)


def _round_ticks(axis: Axis, low: float, high: float) -> None:
    steps = (1, 2, 5) if high / low > 10 else (1, 1.5, 2, 3, 5, 7)
    ticks = [step * 10.0**k for k in range(7) for step in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def roofline_points(cells: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of `model_validation.compare` with a bandwidth and a model, and `bandwidth_mib_per_s`.

    `model_images_per_s` is per process; all processes share the storage. `rows` are the measured rows, which
    contain the limits of each storage.
    """
    only = rows[
        (rows["latency_ms"] == 0) & rows["requests_per_s"].isna() & rows["bandwidth_mib_per_s"].notna()
    ]
    bandwidths = only.drop_duplicates("storage").set_index("storage")["bandwidth_mib_per_s"]
    chosen = cells[cells["storage"].isin(bandwidths.index) & cells["model_images_per_s"].notna()]
    return chosen.assign(bandwidth_mib_per_s=chosen["storage"].map(bandwidths))


def draw_measured_roofline(points: pd.DataFrame) -> Figure:
    """Draw `roofline_points` with a panel per bandwidth and number of processes, on logarithmic axes.

    Line: min(the model's speed, W / bytes), with its knee. Points: median of the measured rates; bars: from
    the smallest to the largest. Points below the line are limited by decoding.
    """
    with style():
        groups: list[tuple[Any, pd.DataFrame]] = list(
            points.groupby(["bandwidth_mib_per_s", "num_processes"], sort=True)
        )
        figure, axes = panels(len(groups))
        enlarge(figure, 1.2, 0.5)
        for ax, ((bandwidth, processes), rows) in zip(axes, groups, strict=True):
            _draw(ax, rows, float(bandwidth), float(rows["model_images_per_s"].iloc[0]) * int(processes))
            several = f"{processes} process{'' if processes == 1 else 'es'}"
            panel_title(ax, f"{bandwidth:g} MiB/s", f"{several} on one storage")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        footer(figure, "median, smallest to largest; line: min(model, W / bytes per image)")
    return figure


def _draw(ax: Axes, rows: pd.DataFrame, bandwidth_mib_per_s: float, model_images_per_s: float) -> None:
    limits = {
        "bandwidth_bytes_per_s": bandwidth_mib_per_s * MIB,
        "compute_images_per_s": model_images_per_s,
        "seek_s_per_image": 0.0,
    }
    knee = knee_image_bytes(**limits)
    low, high = min(rows["image_bytes"].min(), knee) / 1.6, max(rows["image_bytes"].max(), knee) * 1.6
    sizes = np.geomspace(low, high, 100)
    ax.plot(sizes, [roofline_images_per_s(size, **limits) for size in sizes], color=MUTED, linewidth=1.4)
    ax.plot(knee, model_images_per_s, "x", color=MUTED, markersize=7)
    note(ax, f"knee {kilobytes(knee)}", (knee, model_images_per_s), (0, 7), ha="center", fontsize=8)
    for level, found in scan_levels(rows):
        middle = found["images_per_s_median"]
        ax.errorbar(
            found["image_bytes"],
            middle,
            [middle - found["images_per_s_min"], found["images_per_s_max"] - middle],
            color=level.color,
            marker=level.marker,
            markeredgecolor="white",
            markersize=8,
            linestyle="none",
            zorder=4,
            label=level.words,
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(rows["images_per_s_min"].min() / 1.6, model_images_per_s * 1.7)
    ticks_in_bytes(ax.xaxis, low, high)
    rate_axis(ax.yaxis)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel("images/s (log scale)")


TABLE_FILE = "validation.md"


def report_validation(folder: str | Path, runs_roots: Sequence[str]) -> list[Path]:
    """Write validation.md and the figures of the measurements in `folder`. Return all files.

    With `runs_roots`: also predicted times to accuracy of the finished runs there.

    Raises:
        RunError: as `load_validation`, `compare` and `read_runs`.
    """
    folder = Path(folder)
    measured = load_validation(folder)
    cells = compare(measured.rows, measured.meta["num_cores"])
    text = rates_to_markdown(measured, cells)
    figures = save_figure(
        partial(draw_predicted_rates, tolerance=RATE_TOLERANCE),
        cells,
        folder,
        "predicted_vs_measured_rates",
        _caption(measured, "Images/s, predicted and measured", cells),
    )
    roof = roofline_points(cells, measured.rows)
    if len(roof):
        caption = _caption(measured, "Measured roofline", roof)
        figures += save_figure(draw_measured_roofline, roof, folder, "measured_roofline", caption)
    if runs_roots:
        runs = run_frame(run for root in runs_roots for run in read_runs(root))
        times = predict_times(runs)
        text += "\n" + times_to_markdown(times)
        figures += save_figure(
            partial(draw_predicted_times, tolerance=TIME_TOLERANCE),
            times,
            folder,
            "predicted_vs_measured_times",
            of_runs(runs, "Time to accuracy, predicted and measured", times),
        )
    table = folder / TABLE_FILE
    table.write_text(text)
    return [table, *figures]


def _caption(measured: Validation, shows: str, cells: pd.DataFrame) -> Caption:
    settings = measured.meta["settings"]
    storages = " / ".join(str(storage) for storage in dict.fromkeys(cells["storage"]))
    return Caption(
        shows=shows,
        of=(f"{settings['dataset']} · a pretended model · crops of {settings['image_size']} px",),
        n=f"n = {span(cells['n'])} repeats",
        hardware=describe_hardware(measured.meta),
        storage=f"storage: {storages.replace('unlimited', 'no limit in MiB/s')}",
    )


def rates_to_markdown(measured: Validation, cells: pd.DataFrame) -> str:
    """Return how many cells are predicted within tolerance for each limit, then every cell."""
    meta, settings = measured.meta, measured.meta["settings"]
    commits = [found["git_sha"] and found["git_sha"][:8] for found in meta["measurements"]]
    dirty = any(found["git_dirty"] for found in meta["measurements"])
    code = describe_code(commits, dirty, meta["packages"])
    facts = (
        f"{settings['dataset']}, {settings['num_images']} images in records of "
        f"{settings['images_per_record']}; crops of {settings['image_size']} px, batches of "
        f"{settings['batch_size']}, {settings['num_workers']} decoding worker per process; "
        f"{settings['measure_s']:g} s each after settling; {meta['cpu']}, {meta['num_cores']} cores; "
        f"n = {span(cells['n'])} repeats, median (smallest to largest); {code}."
    )
    tested = cells[~cells["is_calibration"]]
    summary = markdown_table(summarise(tested, RATE_TOLERANCE), _SUMMARY)
    title = "### Predicted and measured images/s"
    return "\n\n".join([title, facts, summary, markdown_table(tested, _CELLS)]) + "\n"


def times_to_markdown(times: pd.DataFrame) -> str:
    """Return how many runs are predicted within tolerance, then every run."""
    facts = (
        "Of finished runs that reached their target. Compute is what the group 1 runs of the same setting "
        "did (mean over seeds, training and waiting, after the first train row). Runs whose seconds may not "
        "be said are left out; every row of the second table is one run (n = 1)."
    )
    within = summarise(times.assign(num_processes=1), TIME_TOLERANCE)
    summary = markdown_table(within, _SUMMARY | {"processes": lambda _: "1"})
    title = "### Predicted and measured time to accuracy"
    return "\n\n".join([title, facts, summary, markdown_table(times, _TIMES)]) + "\n"


def summarise(rows: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """Return, per limit and number of processes, and over all rows, how many errors are within tolerance.

    Columns: `bound`, `num_processes`, `n`, `num_within`, `tolerance`; `median` and `largest` absolute error.
    """
    summary = []
    for key, part in [*rows.groupby(["bound", "num_processes"], sort=True), (("all", "all"), rows)]:
        size = part["error"].abs()
        summary.append(
            {
                **dict(zip(("bound", "num_processes"), key, strict=True)),
                "n": len(part),
                "num_within": int((size <= tolerance).sum()),
                "tolerance": tolerance,
                "median": size.median(),
                "largest": size.max(),
            }
        )
    return pd.DataFrame(summary)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(row: Mapping[Any, Any]) -> str:
    return f"{100 * row['error']:+.1f} %"


def _model(row: Mapping[Any, Any]) -> str:
    rate = row["model_images_per_s"]
    return "none" if math.isnan(rate) else three_figures(rate)


_SUMMARY = {
    "limit": lambda row: row["bound"].replace("_", " "),
    "processes": lambda row: str(row["num_processes"]),
    "n": lambda row: str(row["n"]),
    "within": lambda row: f"{row['num_within']} within {100 * row['tolerance']:g} %",
    "median error": lambda row: _percent(row["median"]),
    "largest": lambda row: _percent(row["largest"]),
}

_CELLS = {
    "storage": lambda row: row["storage"],
    "processes": lambda row: str(row["num_processes"]),
    "model, images/s each": _model,
    "scan": lambda row: describe_scan(row["scan"]),
    "limit": lambda row: row["bound"].replace("_", " "),
    "predicted images/s": lambda row: three_figures(row["predicted_images_per_s"]),
    "measured images/s": median_cell("images_per_s", three_figures),
    "error": _signed,
}

_TIMES = {
    "task": lambda row: f"{row['dataset']} · {row['label']}",
    "scan": lambda row: describe_scan(row["scan"]),
    "seed": lambda row: str(row["seed"]),
    "epochs": lambda row: f"{row['epochs_to_accuracy']:g}",
    "limit": lambda row: row["bound"],
    "predicted images/s": lambda row: three_figures(row["predicted_images_per_s"]),
    "measured images/s": lambda row: three_figures(row["images_per_s"]),
    "predicted s": lambda row: three_figures(row["predicted_s"]),
    "measured s": lambda row: three_figures(row["measured_s"]),
    "error": _signed,
}
