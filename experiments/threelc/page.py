"""The page of gradient compression: tables in Markdown, and all figures that the runs allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.results.methods import describe_target, speedup_cell
from experiments.threelc.figures import (
    draw_accuracy_against_time,
    draw_bits_over_training,
    draw_speedups,
    draw_traffic_by_sparsity,
    gradient_links,
    traffic_by_sparsity,
)
from experiments.threelc.frame import (
    COMPARED,
    PANEL_KEYS,
    REFERENCE,
    SPEEDUP_AT_1_GBIT,
    accuracy_curves,
    bits_curves,
    gradient_frame,
    gradient_table,
    published,
)
from pcr_exp.analysis.distinguishing import describe_settings, titles_apart
from pcr_exp.analysis.page import Output
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.statistics import describe_interval
from pcr_exp.analysis.tables import (
    Cell,
    Footnotes,
    difference_cell,
    markdown_table,
    percent,
    reached_cell,
    score_cells,
    spread_cell,
    three_figures,
    timed,
)


def write_gradient_report(output: Output) -> None:
    """Write tables and figures; nothing if no run compresses gradients.

    * `gradients.csv`, `gradients.md`: `gradient_table`, next to the published numbers;
    * `gradient_speedup`: if there are runs with `gradients=none` to compare with;
    * `gradient_time`: for runs with several evaluations;
    * `gradient_traffic`, `gradient_bits`: for 3LC's runs.
    """
    frame = gradient_frame(output.frame)
    if frame.empty or (frame["codec"] == REFERENCE).all():
        return
    table = gradient_table(frame)
    output.table("gradients", table, gradients_to_markdown(table, describe_settings(frame, COMPARED)))
    if (table["speedup"].notna() & (table["codec"] != REFERENCE)).any():
        output.figure("gradient_speedup", "Speed-up and accuracy per codec", table, draw_speedups)
    curves = accuracy_curves(frame)
    if len(curves):
        # Runs on other links were evaluated only once.
        drawn = frame[frame["bandwidth_mbit_per_s"].isin(curves["bandwidth_mbit_per_s"])]
        shows = "Accuracy over time per codec"
        output.figure("gradient_time", shows, curves, draw_accuracy_against_time, drawn)
    traffic = traffic_by_sparsity(table)
    if len(traffic):
        output.figure("gradient_traffic", "Bits per value of 3LC", traffic, draw_traffic_by_sparsity)
    bits = bits_curves(frame)
    if len(bits):
        output.figure("gradient_bits", "Bits per value over training", bits, draw_bits_over_training)


def gradients_to_markdown(table: pd.DataFrame, settings: Mapping[str, str] | None = None) -> str:
    """Return a table per panel, mode and network of `gradient_table`.

    `settings`, from `distinguishing.describe_settings`, name them in titles that would otherwise be equal.
    """
    parts = []
    notes = Footnotes()
    found = [(f"{title}, {link}", rows) for title, _, link, rows in gradient_links(table)]
    groups = [(title, {key: rows[key].iloc[0] for key in PANEL_KEYS}) for title, rows in found]
    titles = titles_apart(groups, settings)
    for title, (_, rows) in zip(titles, found, strict=True):
        guess, cell = list(score_cells(rows).items())[-1]
        majority = f"{guess} {cell(rows.iloc[0].to_dict())}"
        parts += [
            f"**{title}**, {describe_target(rows)}, {majority}",
            markdown_table(rows, _columns(rows, notes)),
        ]
    parts.append(
        "bits per value: all values that processes encoded, pushed and pulled, with what frames messages; of "
        "large tensors: those that went through the codec (small tensors are sent as float32 and were not "
        "counted in the paper's table, as far as is known); ratio: 32 over that. images/s: over training "
        "and waiting after the first logged updates; speed-up: over `none` of the same seed for as many "
        f"updates; difference: last {metric_of(table).words} less that of `none` of the same seed, "
        f"± half its 95 % interval ({describe_interval(table)}). Published: "
        "ResNet-110, CIFAR-10, 10 GPU workers with a parameter server; at 1 Gbit/s 3LC's speed-up was about "
        f"{SPEEDUP_AT_1_GBIT} (recalled, medium). Brackets: smallest and largest of n seeds."
    )
    if str(notes):
        parts.append(str(notes))
    return "\n\n".join(parts) + "\n"


def _columns(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    def seconds(row: Mapping[Any, Any]) -> str:
        return spread_cell(row, "time_to_target_s", three_figures)

    return {
        "codec": lambda row: row["codec"],
        "updates": lambda row: f"{row['updates']:,}",
        "n": lambda row: notes.count(row["n"]),
        "bits per value": lambda row: three_figures(row["bits_per_value_mean"]),
        "of large tensors": lambda row: three_figures(row["coded_bits_mean"]),
        "ratio": lambda row: three_figures(row["ratio"]),
        "kB on the wire per update": lambda row: three_figures(row["wire_bytes_per_update_mean"] / 1e3),
        "images/s": timed(notes, lambda row: spread_cell(row, "images_per_s", three_figures)),
        **score_cells(rows),
        "difference to none, points": lambda row: difference_cell(row, notes),
        "s to target": lambda row: reached_cell(row, notes, seconds),
        "speed-up": timed(notes, speedup_cell(three_figures)),
        "published: bits per value": lambda row: three_figures(published(row).bits_per_value),
        "ratio there": lambda row: three_figures(published(row).ratio),
        "speed-up there, 10 Mbit/s": lambda row: three_figures(published(row).speedup_at_10_mbit),
        "top-1 there": lambda row: percent(published(row).top1),
        "certainty": lambda row: published(row).certainty,
    }
