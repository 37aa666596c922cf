"""The page of PCR and the related methods in every combination: where bytes went, and the cost."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from experiments.results.methods import over_seeds, page_frame, speedup_cell
from pcr_exp.analysis.figure import (
    PANEL_WIDTH_IN,
    footer,
    new_figure,
    panel_title,
    percent_axis,
    single_run_mark,
)
from pcr_exp.analysis.frame import per_setting, seconds_of
from pcr_exp.analysis.marks import upright_chance_lines
from pcr_exp.analysis.page import Output, joined, sections
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.reporting_rules import all_hardware
from pcr_exp.analysis.statistics import describe_interval, paired_difference, paired_ratio
from pcr_exp.analysis.style import INK, MUTED, describe_scan, style
from pcr_exp.analysis.tables import (
    NOTHING,
    Cell,
    Footnotes,
    difference_cell,
    kilobytes,
    number,
    score_cells,
    span,
    spread_cell,
    three_figures,
    timed,
)
from pcr_exp.config.describe import network_label
from pcr_exp.config.related_methods import ActivationsConfig, EchoConfig, GradientsConfig, NetworkConfig
from pcr_exp.system.keys import key_of

OFF = "all off"
PANEL_KEYS = ["dataset", "label", "model", "storage", "network", "processes", "setting"]
"""Columns that compared runs share; `setting` stands for all but METHODS, epochs, seed and target."""
METHODS = ["scan", "echo", "gradients", "activations"]
PLACES = {"storage": "storage_bytes", "network": "wire_bytes", "memory": "kept_bytes_mean"}
"""Places where bytes are saved, and the measure of each."""
TIMES = ["seconds", "wait_s", "network_s"]
MEASURES = [
    *("storage_bytes", "fresh", "repeats", "reused_bytes", "updates"),
    *("pushed_bytes", "pulled_bytes", "wire_bytes", "kept_bytes_mean", "kept_bytes_max"),
    *("final_score", "best_score", *TIMES),
]
_COMPARED = (*METHODS, "seed", "training.epochs")
_SAME = [*METHODS, "combination", "majority_share", "num_classes", "headline"]
_DEFAULTS: dict[str, dict[str, Any]] = {
    "echo": asdict(EchoConfig()),
    "gradients": asdict(GradientsConfig()),
    "activations": asdict(ActivationsConfig()),
    "network": asdict(NetworkConfig()),
}


def combined_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame of runs with METHODS, combination, variant and MEASURES.

    `combination` names the methods that are on; `variant` is a key of the settings behind the name. Bytes and
    samples are of the whole run. `storage_bytes` were read. The pipeline served `reused_bytes` of records
    again without reading them: repeats at the mean size of fresh samples (NaN if repeats read more). All
    processes sent `wire_bytes`. `pushed_bytes` and `pulled_bytes` are of messages, each counted once.
    `kept_bytes_*` are saved for backward in one process, over the measured updates. `seconds` cover training,
    waiting for data and probes, and include `wait_s` for data and `network_s` for the throttled network. They
    are NaN if no seconds may be reported. `final_score` is of the finished model. What older runs did not
    measure is NaN, and so is traffic in runs of one process.
    """
    return page_frame(frame, _combined_columns, less=_COMPARED, times=TIMES)


def combined_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per combination, over seeds, of panels that vary `activations` or three METHODS.

    Columns: PANEL_KEYS, METHODS, combination, `n`, hardware, the chance level, why seconds are excluded, and
    `<measure>_mean`, `_min` and `_max` for each of MEASURES. Compared with the runs with all off, and NaN if
    there are none or several settings of them: `<place>_share` for each of PLACES, the ratio of means;
    `difference_*`, the last score minus theirs of the same seed; `speedup`, the mean over shared seeds of
    their seconds over its own, with `speedup_min` and `_max`, NaN if it may not be reported.
    """
    rows = []
    for _, group, of_panel in per_setting(frame, PANEL_KEYS):
        differs = of_panel[METHODS].nunique() > 1
        if not (differs["activations"] or differs.sum() >= 3):
            continue
        combinations = [
            (over_seeds(runs, _SAME, MEASURES, TIMES), runs)
            for _, runs in of_panel.groupby(["combination", "variant"], sort=True)
        ]
        nobody: tuple[None, pd.DataFrame] = (None, of_panel.iloc[:0])
        all_off = [found for found in combinations if found[0]["combination"] == OFF]
        off, of_off = all_off[0] if len(all_off) == 1 else nobody
        for row, runs in sorted(combinations, key=lambda found: _order(found[0])):
            shares = {f"{place}_share": _share(row, off, measure) for place, measure in PLACES.items()}
            difference = paired_difference(runs, nobody[1] if row is off else of_off, "final_score")
            rows.append(group | row | shares | difference | paired_ratio(of_off, runs, "seconds"))
    return pd.DataFrame(rows)


def _order(row: Mapping[str, Any]) -> tuple[int, list[bool], str]:
    """Return a sort key: all off, then each method alone, and so on up to all of them."""
    is_off = [not _is_on(key, row[key]) for key in METHODS]
    return -sum(is_off), is_off, row["combination"]


def _share(row: Mapping[str, Any], off: Mapping[str, Any] | None, measure: str) -> float:
    whole = off[f"{measure}_mean"] if off else float("nan")
    return row[f"{measure}_mean"] / whole if whole else float("nan")


def _combined_columns(run: Mapping[Any, Any]) -> dict[str, Any]:
    last, config = run["rows"][-1], run["config"]
    config = {**config, **{key: {**none, **config.get(key, {})} for key, none in _DEFAULTS.items()}}
    methods = {"scan": describe_scan(run["scan"]), **_methods(config)}
    on = [name for key, name in methods.items() if _is_on(key, name)]
    repeats = last.get("samples_trained", last["samples_seen"]) - last["samples_seen"]
    reused_bytes = repeats * last["record_bytes"] / last["samples_seen"]
    return {
        "network": network_label(config["network"]),
        "processes": run["world_size"],
        **methods,
        "combination": " + ".join(on) or OFF,
        "variant": key_of({key: config[key] for key in _DEFAULTS} | {"epochs": config["training"]["epochs"]}),
        "storage_bytes": last["bytes_read"],
        "fresh": last["samples_seen"],
        "repeats": repeats,
        "reused_bytes": math.nan if config["echo"]["repeat_groups"] else reused_bytes,
        "updates": last["step"],
        "wire_bytes": last.get("bytes_sent"),
        **{key: last.get(key) for key in ("pushed_bytes", "pulled_bytes", "network_s")},
        **{key: last.get(key) for key in ("kept_bytes_mean", "kept_bytes_max")},
        "seconds": seconds_of(last),
        "wait_s": last["wait_s"],
    }


def _methods(config: Mapping[str, Any]) -> dict[str, str]:
    echo, gradients, activations = config["echo"], config["gradients"], config["activations"]
    server = " server" if gradients["mode"] == "server" else ""
    form = " paper" if activations["error_model"] == "paper" else ""
    if activations["name"] == "injected_errors":
        form = f" {activations['momentum_fraction']:g}"
    return {
        "echo": "none" if echo["factor"] == 1 else f"echo {echo['factor']:g}x",
        "gradients": gradients["name"] + server,
        "activations": activations["name"].replace("_", " ") + form,
    }


def _is_on(method: str, name: str) -> bool:
    return name != ("baseline" if method == "scan" else "none")


# None is a scan level's colour (`style.OTHER_STYLES`). Shapes serve readers without colour.
_STYLES = {"storage": ("#0072B2", "o"), "network": ("#8c6d31", "s"), "memory": ("#009E73", "D")}
_COMPUTING = "#c4c4c4"
_WIDTHS = (1.1, 1.0, 0.8)
_INCHES_PER_ROW, _INCHES_AROUND = 0.36, 1.9


def write_combined(output: Output) -> None:
    """Write combined.md and the figure `combined` (PDF, PNG, CSV), if there are combinations to compare."""
    summary = combined_summary(combined_frame(output.frame))
    if len(summary):
        output.text("combined", combined_markdown(summary))
        shows = "Where bytes and seconds go, with every combination"
        output.figure("combined", shows, summary, draw_combined)


def combined_markdown(summary: pd.DataFrame) -> str:
    """Return one table per panel: where bytes went, with their share of all off in brackets."""
    return joined(sections(summary, PANEL_KEYS, None, _facts, _columns))


def _facts(group: Mapping[str, Any], rows: pd.DataFrame) -> str:
    return (
        f"Storage {group['storage']}, network {group['network']}, {_processes(group)}; "
        f"{_updates(rows)} updates; mean over n seeds (smallest to largest), bytes in brackets against all "
        "off; speed-up and difference: against all off of the same seed, the latter ± half its 95 % interval "
        f"({describe_interval(rows)}). "
        "Bytes saved for backward are those of one process, each storage once. "
        f"Setting {group['setting']}; {all_hardware(rows)}."
    )


def _processes(group: Mapping[str, Any]) -> str:
    return f"{group['processes']} process{'' if group['processes'] == 1 else 'es'}"


def _updates(rows: pd.DataFrame) -> str:
    return " or ".join(f"{count:,.0f}" for count in sorted(set(rows["updates_mean"])))


def _columns(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    return {
        "combination": lambda row: row["combination"],
        "n": lambda row: notes.count(row["n"]),
        "read from storage": _bytes_cell("storage_bytes", "storage_share"),
        "fresh examples": lambda row: spread_cell(row, "fresh", "{:,.0f}".format),
        "repeats": lambda row: spread_cell(row, "repeats", "{:,.0f}".format),
        "repeated by the pipeline": _bytes_cell("reused_bytes"),
        "pushed": _bytes_cell("pushed_bytes"),
        "pulled": _bytes_cell("pulled_bytes"),
        "on the wire": _bytes_cell("wire_bytes", "network_share"),
        "saved for backward, mean": _bytes_cell("kept_bytes_mean", "memory_share"),
        "at most": lambda row: number(row["kept_bytes_max_max"], kilobytes),
        "seconds": timed(notes, lambda row: spread_cell(row, "seconds", three_figures)),
        "of them data, network": timed(notes, _waits),
        "speed-up": timed(notes, _speedup),
        **score_cells(rows),
        "difference, points": lambda row: difference_cell(row, notes),
    }


def _speedup(row: Mapping[Any, Any]) -> str:
    return NOTHING if row["combination"] == OFF else speedup_cell("{:.2f} x".format)(row)


def _bytes_cell(measure: str, share: str | None = None) -> Cell:
    def cell(row: Mapping[Any, Any]) -> str:
        text = number(row[f"{measure}_mean"], kilobytes)
        if share is None or row[share] != row[share]:
            return text
        return f"{text} ({100 * row[share]:.3g}%)"

    return cell


def _waits(row: Mapping[Any, Any]) -> str:
    return ", ".join(number(row[f"{wait}_mean"], three_figures) for wait in ("wait_s", "network_s"))


def draw_combined(summary: pd.DataFrame) -> Figure:
    """Draw three panels per group of comparable runs, with a line per combination (`combined_summary`).

    They show bytes at each place as shares of those with all off, on a logarithmic axis; seconds of training
    and waiting, split into computing, network and data; the finished model's score minus that with all off.
    """
    panels = list(per_setting(summary, PANEL_KEYS))
    heights = [_INCHES_AROUND + _INCHES_PER_ROW * len(rows) for _, _, rows in panels]
    with style():
        figure = new_figure(PANEL_WIDTH_IN * sum(_WIDTHS), sum(heights))
        grid = figure.subplots(
            len(panels), 3, squeeze=False, width_ratios=_WIDTHS, height_ratios=heights, sharey="row"
        )
        for axes, (title, group, rows) in zip(grid, panels, strict=True):
            rows = rows.reset_index(drop=True)
            _draw_bytes(axes[0], rows)
            _draw_seconds(axes[1], rows)
            _draw_score(axes[2], rows)
            for ax in axes:
                ax.grid(axis="y", visible=False)
            most = rows["n"].max()
            names = zip(rows["combination"], rows["n"], strict=True)
            axes[0].set_yticks(range(len(rows)), [name + single_run_mark(n, most) for name, n in names])
            axes[0].invert_yaxis()
            panel_title(axes[0], title, f"{_processes(group)}, n = {span(rows['n'])}")
            panel_title(axes[1], " ", f"storage {group['storage']}, network {group['network']}")
            panel_title(axes[2], " ", f"after {_updates(rows)} updates")
        footer(figure, "whiskers of seconds: smallest and largest seed; of differences: 95 % intervals")
    return figure


def _draw_bytes(ax: Axes, rows: pd.DataFrame) -> None:
    places = [place for place in PLACES if rows[f"{place}_share"].notna().any()]
    for i, place in enumerate(places):
        color, marker = _STYLES[place]
        heights = rows.index + 0.18 * (i - (len(places) - 1) / 2)  # so equal shares do not overlap
        ax.plot(rows[f"{place}_share"], heights, marker, color=color, markersize=6, label=place)
    ax.axvline(1, color=MUTED, linewidth=1, linestyle="--", zorder=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("bytes read, sent, saved for backward\n(share of all off, log scale)")
    if places:
        _legend_below(ax)


def _draw_seconds(ax: Axes, rows: pd.DataFrame) -> None:
    if (rows["timing_excluded_because"] != "").all():
        words = textwrap.fill(f"no seconds: {rows['timing_excluded_because'].iloc[0]}", 34)
        ax.annotate(
            words, (0.5, 0.5), xycoords="axes fraction", ha="center", va="center", color=MUTED, fontsize=8
        )
        ax.set_xlabel("seconds of training and waiting")
        ax.set_xticks([])
        return
    wait, network = rows["wait_s_mean"], rows["network_s_mean"].fillna(0)
    computing = rows["seconds_mean"] - wait - network
    left = pd.Series(0.0, index=rows.index)
    for seconds, color, name in (
        (computing, _COMPUTING, "computing"),
        (network, _STYLES["network"][0], "network"),
        (wait, _STYLES["storage"][0], "data"),
    ):
        ax.barh(rows.index, seconds, left=left, height=0.6, color=color, label=name)
        left = left + seconds
    _whiskers(ax, rows, "seconds", marker="")
    ax.set_xlabel("seconds of training and waiting")
    ax.set_xlim(left=0)
    _legend_below(ax)


def _draw_score(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw differences to all off with their intervals, or scores if there is nothing to compare with."""
    if rows["difference_mean"].notna().any():
        compared = rows[rows["combination"] != OFF]
        points, ci95 = (100 * compared[f"difference_{part}"] for part in ("mean", "ci95"))
        ax.errorbar(points, compared.index, xerr=ci95, fmt="o", color=INK, capsize=3, elinewidth=1)
        ax.axvline(0, color=MUTED, linewidth=1, linestyle="--", zorder=1)
        ax.set_xlabel(f"points of {metric_of(rows).words}\nagainst all off, same seed")
        return
    upright_chance_lines(ax, rows)
    _whiskers(ax, rows, "final_score", marker="o")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    percent_axis(ax.xaxis)
    ax.set_xlabel(f"last validation {metric_of(rows).words}")


def _legend_below(ax: Axes) -> None:
    """Place the legend below the axis label, at a distance that does not depend on the panel's height."""
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=6, ncols=3, fontsize=8, columnspacing=1
    )


def _whiskers(ax: Axes, rows: pd.DataFrame, measure: str, *, marker: str) -> None:
    mean, low, high = (rows[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    ax.errorbar(
        mean,
        rows.index,
        xerr=[mean - low, high - mean],
        fmt=marker or "none",
        color=INK,
        capsize=3,
        elinewidth=1,
    )
