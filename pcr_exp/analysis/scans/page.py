"""The summary table for people: as Markdown, and in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from pcr_exp.analysis.core.cells import (
    NOTHING,
    Cell,
    Footnotes,
    difference_cell,
    kilobytes,
    number,
    percent,
    reached_cell,
    score_cells,
    section,
    spread_cell,
    three_figures,
    timed,
)
from pcr_exp.analysis.core.headline import headline_of
from pcr_exp.analysis.core.look import scan_words
from pcr_exp.analysis.core.permitted import all_hardware
from pcr_exp.analysis.core.run_quality import ms_ssim_words
from pcr_exp.analysis.core.runs_table import GROUP_KEYS, per_setting
from pcr_exp.analysis.core.statistics import interval_words
from pcr_exp.analysis.core.told_apart import titles_apart


def to_markdown(
    summary: pd.DataFrame,
    unfinished: pd.DataFrame | None = None,
    words: Mapping[str, str] | None = None,
) -> str:
    """One Markdown table per dataset x label x model x storage; runs without a result are listed below.

    `words` as `told_apart.setting_words` has them: they name settings in titles that would be alike.
    """
    parts = []
    for title, facts, rows, columns, notes in _tables(summary, words):
        parts.append(section(title, facts, rows, columns, notes))
    if not parts:
        parts.append("No finished runs.\n")
    if unfinished is not None and len(unfinished):
        listed = "\n".join(f"* `{row['run_id']}`: {row['status']}" for row in unfinished.to_dict("records"))
        parts.append(f"Not in the tables, because they did not finish:\n\n{listed}\n")
    return "\n".join(parts)


def to_rich(summary: pd.DataFrame) -> list[Table]:
    """The same tables for `rich.print`."""
    tables = []
    for title, facts, rows, columns, notes in _tables(summary):
        # One line per level, also in a terminal of 80 columns.
        table = Table(title=title, box=SIMPLE_HEAD, padding=0, pad_edge=False)
        table.title_justify = table.caption_justify = "left"
        for i, name in enumerate(columns):
            table.add_column(_broken(name), justify="left" if i == 0 else "right")
        for row in rows.to_dict("records"):
            table.add_row(*(cell(row) for cell in columns.values()))
        table.caption = " ".join([facts, str(notes)])
        tables.append(table)
    return tables


def _broken(name: str) -> str:
    """A column's name on as many lines as it has words."""
    return name.replace(" ", "\n")


def _tables(
    summary: pd.DataFrame, words: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str, pd.DataFrame, dict[str, Cell], Footnotes]]:
    """(title, facts, rows, columns, footnotes) of every group of comparable runs.

    Footnotes are complete once all cells are made.
    """
    if summary.empty:
        return
    found = list(per_setting(summary, [*GROUP_KEYS, "timing"]))
    titles = titles_apart([(title, group) for title, group, _ in found], words)
    for title, (_, group, rows) in zip(titles, found, strict=True):
        hardware = all_hardware(rows)
        apart = summary.loc[summary["setting"] == group["setting"], "timing"].nunique() > 1
        timing = f"; timing {group['timing']}" if apart else ""
        facts = (
            f"Storage {group['storage']}; target {percent(rows['target_score'].iloc[0])} "
            f"validation {headline_of(rows).words}; "
            "mean over n seeds (smallest to largest); differences are of runs of one seed, ± half their 95 % "
            f"interval ({interval_words(rows)}); time is training + data wait + probes; "
            f"setting {group['setting']}; {hardware}{timing}."
        )
        notes = Footnotes()
        yield title, facts, rows, _columns(rows, notes), notes


def _columns(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    baselines = rows[rows["encoding"] == "baseline"]

    def rate(measure: str, show: Any) -> Cell:
        return timed(notes, lambda row: spread_cell(row, measure, show))

    def seconds(row: Mapping[Any, Any]) -> str:
        text = spread_cell(row, "time_to_target_s", three_figures)
        return text if row["n_timed"] == row["n"] else f"{text}, n = {row['n_timed']}"

    def difference(row: Mapping[Any, Any]) -> str:
        return NOTHING if row["encoding"] == "baseline" else difference_cell(row, notes)

    def speedup(row: Mapping[Any, Any]) -> str:
        if baselines.empty:
            return "no baseline"
        if reason := row["no_target"] or row["no_seconds"] or baselines["no_seconds"].iloc[0]:
            return notes.refuse(reason)
        if row["num_reached"] < row["n"]:
            return NOTHING
        if baselines["num_reached"].iloc[0] < baselines["n"].iloc[0]:
            return "baseline: not reached"
        return number(row["speedup_over_baseline"], lambda value: f"{value:.2f} x")

    return {
        "scan": lambda row: scan_words(row["scan"]),
        "n": lambda row: notes.count(row["n"]),
        "bytes per image": lambda row: kilobytes(row["mean_image_bytes"]),
        ms_ssim_words(rows["ms_ssim_of"]): lambda row: number(row["ms_ssim"], "{:.3f}".format),
        "scales": lambda row: number(row["num_scales"], "{:.0f}".format),
        "images/s": rate("images_per_s", three_figures),
        "MiB/s": rate("storage_mib_per_s", three_figures),
        "wait share": rate("wait_share", percent),
        **score_cells(rows),
        "difference to baseline, points": difference,
        "seconds to target": lambda row: reached_cell(row, notes, seconds),
        "speed-up over baseline": speedup,
    }
