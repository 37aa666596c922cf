"""The summary of runs: one line per scan level over its seeds, as Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from pcr_exp.analysis.frame import GROUP_KEYS, by_level, describe_ms_ssim
from pcr_exp.analysis.over_images import with_intervals
from pcr_exp.analysis.page import Section, sections
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.reporting_rules import NAN, all_hardware, distinct
from pcr_exp.analysis.statistics import describe_interval, distinct_seeds, paired_ratio, repeat_of, spread
from pcr_exp.analysis.style import describe_scan
from pcr_exp.analysis.tables import (
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


def to_markdown(
    summary: pd.DataFrame, unfinished: pd.DataFrame | None = None, words: Mapping[str, str] | None = None
) -> str:
    """Return a Markdown table per dataset x label x model x storage; unfinished runs are listed below.

    `words` (`distinguishing.describe_settings`) name settings in titles that would otherwise be equal.
    """
    parts = [section(*each) for each in _sections(summary, words)] or ["No finished runs.\n"]
    if unfinished is not None and len(unfinished):
        listed = "\n".join(f"* `{row['run_id']}`: {row['status']}" for row in unfinished.to_dict("records"))
        parts.append(f"Not in the tables, because they did not finish:\n\n{listed}\n")
    return "\n".join(parts)


def to_rich(summary: pd.DataFrame) -> list[Table]:
    """Return the same tables for `rich.print`."""
    tables = []
    for title, facts, rows, columns, notes in _sections(summary):
        # One line per level, also in a terminal of 80 columns.
        table = Table(title=title, box=SIMPLE_HEAD, padding=0, pad_edge=False)
        table.title_justify = table.caption_justify = "left"
        for i, name in enumerate(columns):
            table.add_column(name.replace(" ", "\n"), justify="left" if i == 0 else "right")
        for row in rows.to_dict("records"):
            table.add_row(*(cell(row) for cell in columns.values()))
        table.caption = " ".join([facts, str(notes)])
        tables.append(table)
    return tables


def _sections(summary: pd.DataFrame, words: Mapping[str, str] | None = None) -> Iterable[Section]:
    def facts(group: Mapping[str, Any], rows: pd.DataFrame) -> str:
        apart = summary.loc[summary["setting"] == group["setting"], "timing"].nunique() > 1
        timing = f"; timing {group['timing']}" if apart else ""
        return (
            f"Storage {group['storage']}; target {percent(rows['target_score'].iloc[0])} "
            f"validation {metric_of(rows).words}; "
            "mean over n runs (smallest to largest); differences are of one seed or fold, ± half their 95 % "
            f"interval ({describe_interval(rows)}); time is training + data wait + probes; "
            f"setting {group['setting']}; {all_hardware(rows)}{timing}."
        )

    return [] if summary.empty else sections(summary, [*GROUP_KEYS, "timing"], words, facts, _columns)


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
        if (
            reason := row["target_excluded_because"]
            or row["timing_excluded_because"]
            or baselines["timing_excluded_because"].iloc[0]
        ):
            return notes.refuse(reason)
        if row["num_reached"] < row["n"]:
            return NOTHING
        if baselines["num_reached"].iloc[0] < baselines["n"].iloc[0]:
            return "baseline: not reached"
        return number(row["speedup_over_baseline"], lambda value: f"{value:.2f} x")

    return {
        "scan": lambda row: describe_scan(row["scan"]),
        "n": lambda row: notes.count(row["n"]),
        "bytes per image": lambda row: kilobytes(row["mean_image_bytes"]),
        describe_ms_ssim(rows["ms_ssim_of"]): lambda row: number(row["ms_ssim"], "{:.3f}".format),
        "scales": lambda row: number(row["num_scales"], "{:.0f}".format),
        "images/s": rate("images_per_s", three_figures),
        "MiB/s": rate("storage_mib_per_s", three_figures),
        "wait share": rate("wait_share", percent),
        **score_cells(rows),
        "difference to baseline, points": difference,
        "seconds to target": lambda row: reached_cell(row, notes, seconds),
        "speed-up over baseline": speedup,
    }


ACCURACY = ["final_score", "best_score"]

SPEED = ["images_per_s", "storage_mib_per_s", "wait_share", "time_to_target_s"]


def scan_comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows for figures of scan levels: without groups of one level among several settings.

    Such groups (GROUP_KEYS) compare settings. As panels of one curve each, they would compare nothing.
    """
    *named, _ = GROUP_KEYS
    num_levels = rows.groupby(GROUP_KEYS)["scan"].transform("nunique")
    num_settings = rows.groupby(named)["setting"].transform("nunique")
    return rows[(num_levels > 1) | (num_settings == 1)]


def with_timing(runs: pd.DataFrame) -> pd.DataFrame:
    """Return `run_frame` rows, with `timing` emptied in groups where no run's seconds may be shown.

    An empty `timing` separates no rows. In other groups, different hardware or settings stay separate.
    """
    may = runs["timing_excluded_because"] == ""
    any_may = may.groupby([runs[key] for key in GROUP_KEYS]).transform("any")
    return runs.assign(timing=runs["timing"].where(any_may.astype(bool), ""))


def one_run_per_seed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first run of each seed and scan level, on any hardware, with empty `timing`."""
    first = rows.groupby([*GROUP_KEYS, "scan", *repeat_of(rows)])["run_id"].transform("first")
    return rows[rows["run_id"] == first].assign(timing="")


def summary_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row of numbers per GROUP_KEYS x timing x scan of `run_frame`, over seeds or folds.

    * Scores are over the `n` seeds of a setting, on any hardware: `final_score_*` (reported) and
      `best_score_*`, each mean, min and max. `difference_*` is the final score minus the baseline's of the
      same seed. Its interval also covers images if all runs of the group saved predictions.
    * Rates and times are over the `n_timed` runs that share a timing (hardware, workers, commit), NaN if
      `timing_excluded_because` gives a reason. `num_reached` counts seeds that reached the target. If some
      did not, `time_to_target_s_*` are NaN, because a mean of the others would be biased.
    * `speedup_over_baseline` is the baseline's seconds to the target over this level's of the same seed, a
      mean over the seeds of both. It is NaN unless every seed of both reached it and both may be shown.
    * `ms_ssim` is the mean over the runs, NaN if one was not measured; `num_scales` is the fewest.
      `ms_ssim_of` is whole images, or training crops and their side (`frame`).
    """
    rows = []
    for group, of_group in with_timing(runs).groupby(GROUP_KEYS, sort=True):
        baseline = of_group[of_group["encoding"] == "baseline"]
        differences = with_intervals(of_group, baseline, "final_score")
        for (timing, scan), of_scan in of_group.groupby(["timing", "scan"], sort=True):
            level = of_group[of_group["scan"] == scan]
            keys = dict(zip([*GROUP_KEYS, "timing", "scan"], [*group, timing, scan], strict=True))
            rows.append(keys | _summary(level, of_scan, baseline, differences[scan]))
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    return by_level(table, [*GROUP_KEYS, "timing"], ["scan"])


def _summary(
    level: pd.DataFrame, timed: pd.DataFrame, baseline: pd.DataFrame, difference: Mapping[str, Any]
) -> dict[str, Any]:
    seeds = distinct_seeds(level)
    first: dict[Any, Any] = seeds.iloc[0].to_dict()
    same_timing = baseline[baseline["timing"] == timed["timing"].iloc[0]]
    reasons = distinct(timed["timing_excluded_because"])
    speed = spread(timed, SPEED)
    if reasons:
        speed = dict.fromkeys(speed, NAN)
    row = {
        **{key: first[key] for key in ("encoding", "group")},
        "n": len(seeds),
        "mean_image_bytes": seeds["mean_image_bytes"].mean(),
        "ms_ssim": seeds["ms_ssim"].mean(skipna=False),
        "num_scales": seeds["num_scales"].min(),
        "ms_ssim_of": " / ".join(distinct(seeds["ms_ssim_of"].fillna(""))),
        **{key: first[key] for key in ("target_score", "majority_share", "num_classes", "headline")},
        **spread(seeds, ACCURACY),
        **difference,
        "num_reached": int(seeds["epochs_to_target"].notna().sum()),
        "target_excluded_because": first["target_excluded_because"],
        "n_timed": len(timed),
        "timing_excluded_because": reasons[0] if reasons else "",
        **speed,
        "hardware": all_hardware(timed),
    }
    every = timed["time_to_target_s"].notna().all() and same_timing["time_to_target_s"].notna().all()
    ratio = paired_ratio(same_timing, timed, "time_to_target_s") if every else {"speedup": NAN}
    return row | {"speedup_over_baseline": ratio["speedup"]}
