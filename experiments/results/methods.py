"""Frames of runs and table cells shared by the pages of related methods."""

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
    """Return the frame of runs with a page's own columns, which replace columns of the same names.

    Args:
        frame: From `run_frame`.
        own: Returns the page's columns of a run, by name.
        less: Settings that the page compares, which `setting` leaves out (`frame.setting_key`).
        keep: Keys in `less` that `setting` covers nevertheless.
        times: Columns of seconds and rates: NaN where `timing_excluded_because` gives a reason.
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
    """Return one row for the runs of one series, with each seed counted once.

    Args:
        runs: Rows of `page_frame`.
        same: Columns in which these runs agree; taken from the first.
        measures: Columns to summarise with `spread`.
        times: The `measures` that are seconds or rates; also NaN if runs are from unlike hardware.

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
    """Return a cell for `speedup` with `speedup_min` and `speedup_max` (`statistics.paired_ratio`)."""

    def cell(row: Mapping[Any, Any]) -> str:
        renamed = {f"x_{part}": row[f"speedup{end}"] for part, end in _ENDS.items()}
        return spread_cell(renamed, "x", show)

    return cell


def describe_target(rows: pd.DataFrame) -> str:
    """Return the target that the rows share, as `target 75%`."""
    return f"target {100 * rows['target_score'].iloc[0]:g}%"
