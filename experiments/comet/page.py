"""Tables and figures of a study of compressed activations: memory saved, and errors caused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pcr_exp.analysis.caption import NOT_TIMED, Caption, describe_hardware
from pcr_exp.analysis.figure import BELOW, MAX_CURVES, draw_panels, note, panel_title, panels, save_figure
from pcr_exp.analysis.style import INK, MUTED, OTHER_STYLES, style
from pcr_exp.analysis.tables import Cell, kilobytes, markdown_table, number
from pcr_exp.errors import RunError
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import write_measured

# None is a scan level's colour.
_MODE_COLORS = {"none": INK, "lossless": "#9aa5b1", "recompute": OTHER_STYLES[1][0]}
_COLOR = OTHER_STYLES[0][0]
_MEMORY_PANELS = {"kept_bytes": "saved for backward", "peak_bytes": "peak of forward and backward"}
UNIFORM = 1 / math.sqrt(3)
FORMS = {"exact": "sigma = eb sqrt(R/3) ||G||", "paper": "sigma = 0.32 L sqrt(N R) eb"}
_BOUND_COLORS = ["#8fd3c1", "#41b6c4", "#1d7fb8", "#0c2c84"]


def draw_activation_memory(table: pd.DataFrame) -> Figure:
    """Draw two panels of bars (MEMORY_COLUMNS): bytes saved for backward, and the peak of the update."""
    with style():
        figure, axes = panels(2)
        first = table.iloc[0]
        facts = f"batch of {first['batch_size']}, on {first['device']}, storages counted once"
        for ax, (column, name) in zip(axes, _MEMORY_PANELS.items(), strict=True):
            values = table[column].fillna(0)
            colors = [_MODE_COLORS.get(mode, _COLOR) for mode in table["mode"]]
            ax.barh(range(len(table)), values, color=colors, height=0.66)
            for position, row in enumerate(table.to_dict("records")):
                missing = row[column] != row[column]
                share = "" if missing else f"{kilobytes(row[column])}, {row[column] / first[column]:.2f} x"
                words, end = "not for this model" if missing else share, (values.iloc[position], position)
                note(ax, words, end, (4, 0), va="center", fontsize=8, color=MUTED)
            ax.set_yticks(range(len(table)), list(table["mode"]))
            ax.invert_yaxis()
            ax.margins(x=0.35)
            ax.xaxis.set_major_locator(MaxNLocator(5))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: kilobytes(value)))
            ax.grid(axis="y", visible=False)
            panel_title(ax, name, facts)
    return figure


def draw_codec_errors(errors: pd.DataFrame) -> Figure:
    """Draw a panel per codec (CODEC_COLUMNS): a histogram of errors in bounds; dotted: uniform errors."""
    found = []
    for codec, rows in errors.groupby("codec", sort=False):
        first = rows.iloc[0]
        facts = (
            f"bound {first['bound']:g}, {first['num_values']:,} values; "
            f"std {first['std']:.3f} (uniform {UNIFORM:.3f})"
        )
        found.append((f"errors of {codec}", facts, rows))
    return draw_panels(found, _draw_codec)


def _draw_codec(ax: Axes, rows: pd.DataFrame) -> None:
    width = rows["high"] - rows["low"]
    ax.bar(rows["low"], rows["share"], width, align="edge", color=_COLOR, linewidth=0)
    ax.axhline(float(width.iloc[0]) / 2, color=INK, linewidth=1, linestyle=":")
    ax.set_xlabel("error (bounds)")
    ax.set_ylabel("share of values that are not 0")
    ax.tick_params(colors=MUTED)


def draw_gradient_errors(errors: pd.DataFrame, bound: float) -> Figure:
    """Draw a panel per batch size at one bound (NORMAL_COLUMNS). Line, brackets: the normal distribution."""
    errors = errors[np.isclose(errors["bound"], bound)]
    found = []
    for batch_size, rows in errors.groupby("batch_size"):
        first = rows.iloc[0]
        title = f"N = {batch_size}, bound {bound:g}, {first['num_weights']:,} weights"
        shape = f"kurtosis {first['kurtosis']:.2f} (3), {100 * first['within_one']:.1f}% within 1 (68.3%)"
        found.append((title, shape, rows))
    return draw_panels(found, _draw_normality)


def _draw_normality(ax: Axes, rows: pd.DataFrame) -> None:
    grid = np.linspace(-4, 4, 201)
    width = rows["high"] - rows["low"]
    ax.bar(rows["low"], rows["share"] / width, width, align="edge", color=_COLOR, linewidth=0)
    ax.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=INK, linewidth=1.2)
    ax.set_xlabel("weight gradient error (its own standard deviations)")
    ax.set_ylabel("density")


def draw_gradient_sigma(sigmas: pd.DataFrame) -> Figure:
    """Draw a panel per form (SIGMA_COLUMNS), with a point per layer, bound and batch size; line: equality.

    Layers without an error are left out: their inputs were saved exactly, as the bound gained nothing.
    """
    sigmas = sigmas[sigmas["measured_sigma"] > 0]
    with style():
        figure, axes = panels(len(FORMS))
        for ax, (form, formula) in zip(axes, FORMS.items(), strict=True):
            ratio = (sigmas[f"{form}_sigma"] / sigmas["measured_sigma"]).dropna()
            _draw_sigmas(ax, sigmas, f"{form}_sigma")
            spread = f"{ratio.quantile(0.05):.2g} to {ratio.quantile(0.95):.3g}"
            note = f"predicted / measured: {ratio.median():.3g} (5 to 95 %: {spread})"
            panel_title(ax, f"{form} form", f"{formula}; n = {len(ratio)} errors of layers\n{note}")
    return figure


def _draw_sigmas(ax: Axes, sigmas: pd.DataFrame, predicted: str) -> None:
    by_bound = sigmas.groupby("bound")
    for i, (bound, rows) in enumerate(by_bound):
        ax.plot(
            rows["measured_sigma"],
            rows[predicted],
            "o",
            color=_bound_color(i, len(by_bound)),
            markersize=4,
            alpha=0.7,
            markeredgewidth=0,
            label=f"bound {bound:g}",
        )
    low, high = sigmas["measured_sigma"].min(), sigmas["measured_sigma"].max()
    ax.plot([low, high], [low, high], color=INK, linewidth=1)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("measured standard deviation (log scale)")
    ax.set_ylabel("predicted (log scale)")
    ax.legend(**BELOW, ncols=4, handletextpad=0.1)


def _bound_color(i: int, num_bounds: int) -> Any:
    if num_bounds <= len(_BOUND_COLORS):
        return _BOUND_COLORS[i]
    return mpl.colormaps["YlGnBu"](0.35 + 0.65 * i / (num_bounds - 1))


def draw_layer_bounds(layers: pd.DataFrame) -> Figure:
    """Draw bounds (left) and ratios (right) against updates; `layers` is a run's activations.csv.

    Some layers have a line, from light (first) to dark (last); a band spans all layers. A layer's ratio is
    the codec's. The black line is for all layers together. There, bytes that another operation saved anyway
    count as not compressed.
    """
    with style():
        figure, (bounds, ratios) = panels(2)
        names = list(dict.fromkeys(layers["layer"]))
        own = layers[layers["packed_bytes"] > 0]
        own = own.assign(ratio=own["raw_bytes"] / own["packed_bytes"])
        _draw_range(bounds, layers, "bound")
        _draw_range(ratios, own, "ratio")
        shown = np.unique(np.linspace(0, len(names) - 1, min(len(names), MAX_CURVES - 1)).round().astype(int))
        for name in (names[i] for i in shown):
            color = mpl.colormaps["YlGnBu"](0.35 + 0.65 * names.index(name) / max(1, len(names) - 1))
            rows = layers[layers["layer"] == name]
            bounds.plot(rows["step"], rows["bound"], color=color, linewidth=1)
            rows = own[own["layer"] == name]
            ratios.plot(rows["step"], rows["ratio"], color=color, linewidth=1)
        together = own.groupby("step")[["raw_bytes", "packed_bytes", "held_bytes"]].sum()
        held = 100 * together["held_bytes"].sum() / together["raw_bytes"].sum()
        total = together["raw_bytes"] / (together["packed_bytes"] + together["held_bytes"])
        ratios.plot(total.index, total, color=INK, linewidth=2.2, label="all layers")
        bounds.set_yscale("log")
        bounds.set_ylabel("error bound (log scale)")
        ratios.set_ylabel("raw / packed bytes")
        for ax in (bounds, ratios):
            ax.set_xlabel("update")
        ratios.legend(**BELOW)
        few = f"{len(shown)} of {len(names)} layers" if len(shown) < len(names) else f"{len(names)} layers"
        panel_title(bounds, "bounds", f"{few}, light: first, dark: last; band: all layers")
        facts = f"all layers, last: {total.iloc[-1]:.2f}; {held:.1f}% of the bytes kept elsewhere"
        panel_title(ratios, "ratios", facts)
    return figure


def _draw_range(ax: Axes, rows: pd.DataFrame, column: str) -> None:
    ends = rows.groupby("step")[column].agg(["min", "max"])
    ax.fill_between(ends.index, ends["min"], ends["max"], color=_BOUND_COLORS[0], alpha=0.25, linewidth=0)


TABLE_FILE = "activation_memory.md"
META_FILE = "activations.json"
FIGURES = {
    "codec_errors": ("Errors of activation codecs", "n = 1 batch"),
    "gradient_errors": ("Errors of weight gradients", "n = 1 batch of each size"),
    "gradient_sigma": ("Predicted and measured errors of weight gradients", "n = 1 batch of each size"),
    "activation_memory": ("Memory of one update", "n = 1 batch"),
    "layer_bounds": ("Error bounds and ratios over training", "n = 1 run"),
}
"""By file name: what a figure of a study shows, and its n."""


def write_study(
    folder: Path,
    codec: pd.DataFrame,
    sigmas: pd.DataFrame,
    normal: pd.DataFrame,
    memory: pd.DataFrame,
    *,
    title: str,
    bound: float,
    dataset: str,
) -> list[Path]:
    """Write figures with their CSV, the memory table as Markdown, and activations.json; return paths."""
    make_folder(folder)
    write_measured(folder / META_FILE, {"title": title, "bound": bound, "dataset": dataset})
    write_atomic(folder / TABLE_FILE, [memory_markdown(memory).encode()])
    tables = {
        "codec_errors": codec,
        "gradient_errors": normal,
        "gradient_sigma": sigmas,
        "activation_memory": memory,
    }
    # A network without wide layers has no errors whose distribution could be drawn.
    figures = [save_study_figure(name, rows, folder, folder) for name, rows in tables.items() if len(rows)]
    return [folder / META_FILE, folder / TABLE_FILE, *chain.from_iterable(figures)]


def save_study_figure(name: str, rows: pd.DataFrame, measured_in: Path, out: Path) -> list[Path]:
    """Draw one of FIGURES from its rows into `out`, with a caption from the JSON of a study."""
    meta = json.loads((measured_in / META_FILE).read_text())
    shows, n = FIGURES[name]
    caption = Caption(
        shows=shows,
        of=(f"{meta['dataset']} · {meta['title'].replace(', ', ' · ')}",),
        n=n,
        hardware=describe_hardware(meta),
        storage=NOT_TIMED,
    )
    draws: dict[str, Callable[[pd.DataFrame], Figure]] = {
        "codec_errors": draw_codec_errors,
        "gradient_errors": partial(draw_gradient_errors, bound=meta["bound"]),
        "gradient_sigma": draw_gradient_sigma,
        "activation_memory": draw_activation_memory,
        "layer_bounds": draw_layer_bounds,
    }
    return save_figure(draws[name], rows, out, name, caption)


def draw_run_layers(run: Path, folder: Path) -> list[Path]:
    """Draw a run's bounds and ratios over training as `layer_bounds.{pdf,png,csv}`, next to a study's JSON.

    Raises:
        RunError: the run compressed nothing, or has no checkpoint yet.
    """
    path = RunDirectory(run).layers_path
    if not path.is_file():
        raise RunError(
            f"{path} is not there: wanted a run with activations=lossless or error_bounded, "
            "after its first checkpoint."
        )
    return save_study_figure("layer_bounds", pd.read_csv(path), folder, folder)


def memory_markdown(memory: pd.DataFrame) -> str:
    """Return the memory table as Markdown."""
    first = memory.iloc[0]

    def known(cell: Cell) -> Cell:
        """Leave the cell empty for a mode that was not measured: its second cell has the reason."""
        return lambda row: "" if row["reason"] else cell(row)

    def share(column: str) -> Cell:
        return known(lambda row: f"{row[column] / first[column]:.2f}")

    columns: dict[str, Cell] = {
        "mode": lambda row: row["mode"],
        "kept": lambda row: row["reason"] or kilobytes(row["kept_bytes"]),
        "x none": share("kept_bytes"),
        "peak": known(lambda row: kilobytes(row["peak_bytes"])),
        "x none, peak": share("peak_bytes"),
        "conv inputs": known(lambda row: number(row["conv_bytes"], kilobytes)),
        "packed": known(lambda row: number(row["packed_bytes"], kilobytes)),
        "ratio": known(lambda row: number(row["ratio"], "{:.2f}".format)),
        "kept elsewhere": known(lambda row: number(row["held_bytes"], kilobytes)),
    }
    return markdown_table(memory, columns) + "\n"
