"""Frames of runs, and cells of tables, that the pages of related methods share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.frame import setting_keys
from pcr_exp.analysis.reporting_rules import NAN, UNLIKE, all_hardware, distinct
from pcr_exp.analysis.statistics import distinct_seeds, spread
from pcr_exp.analysis.tables import Cell, spread_cell

_ENDS = {"mean": "", "min": "_min", "max": "_max"}


def page_frame(
    frame: pd.DataFrame,
    own: Callable[[Mapping[Any, Any]], dict[str, Any]],
    *,
    less: Sequence[str],
    keep: Sequence[str] = (),
    times: Sequence[str] = (),
) -> pd.DataFrame:
    """The frame of runs with a page's own columns, in place of what has their names.

    Args:
        frame: As `run_frame` makes it.
        own: A page's columns of a run, by name.
        less: What the page compares, and `setting` does not stand for (`frame.setting_key`).
        keep: What of it `setting` stands for all the same.
        times: Columns of seconds and rates: NaN where `timing_excluded_because` says why.
    """
    columns = pd.DataFrame([own(run) for run in frame.to_dict("records")], index=frame.index)
    found = frame.assign(
        setting=setting_keys(frame, less, keep), **{str(key): columns[key] for key in columns}
    )
    if len(found):
        found.loc[found["timing_excluded_because"] != "", list(times)] = NAN
    return found


def over_seeds(
    runs: pd.DataFrame, same: Iterable[str], measures: Iterable[str], times: Iterable[str]
) -> dict[str, Any]:
    """One row for the runs of one series, each seed once.

    Args:
        runs: Rows of `frame.page_frame`.
        same: Columns that these runs share: taken from the first.
        measures: Columns that `spread` is made of.
        times: Those of `measures` that are seconds or rates: NaN also where runs are of unlike hardware.

    Returns:
        `same`; `n` seeds; `timing_excluded_because`; `hardware`; `<measure>_mean`, `_min`, `_max`.
    """
    seeds = distinct_seeds(runs)
    row: dict[str, Any] = {
        **{key: seeds[key].iloc[0] for key in same},
        "n": len(seeds),
        "timing_excluded_because": " / ".join(distinct(seeds["timing_excluded_because"])),
        "hardware": all_hardware(seeds),
        **spread(seeds, measures),
    }
    if not row["timing_excluded_because"] and seeds["timing"].nunique() > 1:
        row["timing_excluded_because"] = UNLIKE
        row |= {f"{measure}_{part}": NAN for measure in times for part in ("mean", "min", "max")}
    return row


def speedup_cell(show: Callable[[float], str]) -> Cell:
    """`speedup` of a row, with `speedup_min` and `_max` (`statistics.paired_ratio`)."""

    def cell(row: Mapping[Any, Any]) -> str:
        renamed = {f"x_{part}": row[f"speedup{end}"] for part, end in _ENDS.items()}
        return spread_cell(renamed, "x", show)

    return cell


def target_words(rows: pd.DataFrame) -> str:
    """`target 75%`: the target that the rows share."""
    return f"target {100 * rows['target_score'].iloc[0]:g}%"
