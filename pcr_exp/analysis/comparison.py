"""Runs that differ in one setting, compared seed by seed: table, page and figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.distinguishing import changed_settings
from pcr_exp.analysis.figure import footer, new_figure, panel_title
from pcr_exp.analysis.frame import SCAN_AND_SEED, per_setting, setting_keys
from pcr_exp.analysis.marks import difference_lines
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.statistics import DIFFERENCE, SEEDS_ALONE, paired_difference, repeat_of, spread
from pcr_exp.analysis.style import describe_scan, style
from pcr_exp.analysis.tables import (
    NOTHING,
    Footnotes,
    difference_cell,
    markdown_table,
    percent,
    span,
    spread_cell,
    task_title,
)
from pcr_exp.errors import RunError

SIDE_BY_SIDE = ["dataset", "label", "model", "storage", "scan"]
"""Columns that compared runs share."""
_FACTS = ["majority_share", "headline"]
_WIDTH_IN, _LINE_IN, _AROUND_IN = 6.8, 0.36, 1.6
COMPARISON_COLUMNS = [
    *(*SIDE_BY_SIDE, "value", "n", "score_mean", "score_min", "score_max"),
    *(*DIFFERENCE, *_FACTS),
]


def compare_setting(runs: pd.DataFrame, key: str, reference: str) -> pd.DataFrame:
    """Return one row per dataset, label, model, storage, scan and value of a configuration key.

    `score` is the primary metric of the finished model, over seeds. `difference` is this score minus that of
    the same seed at the value `reference`: the mean over seeds that have both, and half its 95 % interval.

    Args:
        runs: `run_frame` of the runs to compare.
        key: A dotted key, as on the command line (`loader.decode`), or a group (`activations`). A group's
            values are its option names, with the settings in which runs of one name differ.
        reference: The value to compare the others with, as text.

    Raises:
        RunError: a run has no such key, none has the reference, two differ in something else, or no run can
            be compared with the reference.
    """
    values = [_value(run, key) for run in runs[["run_id", "config"]].to_dict("records")]
    frame = runs.assign(score=runs["final_score"], value=_as_text(values))
    if frame.empty or reference not in set(frame["value"]):
        found = sorted(set(frame["value"])) if len(frame) else "no finished run"
        raise RunError(f"compare={key} reference={reference}: no run has this value; found {found}.")
    # Runs that differ in workers or hardware alone learned the same, so only one of them counts.
    repeat = [*SIDE_BY_SIDE, "value", *repeat_of(frame)]
    frame = frame.drop_duplicates([*repeat, "setting"])
    others = frame.assign(others=setting_keys(frame, (*SCAN_AND_SEED, key)))
    unlike = others.groupby(SIDE_BY_SIDE)["others"].transform("nunique") > 1
    of_each = others[unlike].drop_duplicates([*SIDE_BY_SIDE, "others"])
    twice = pd.concat([frame[frame.duplicated(repeat, keep=False)], of_each])
    if len(twice):
        raise RunError(
            f"compare={key}: runs also differ in other settings: {', '.join(twice['run_id'].head(2))}. Put "
            "the runs to compare into a folder of their own (runs_root)."
        )
    rows = []
    for _, level in frame.groupby(SIDE_BY_SIDE):
        for value in sorted(set(level["value"]), key=lambda value: (value != reference, value)):
            ours = level[level["value"] == value]
            row: dict[Any, Any] = {**level.iloc[0][SIDE_BY_SIDE].to_dict(), "value": value, "n": len(ours)}
            row |= level.iloc[0][_FACTS].to_dict() | spread(ours, ["score"])
            rows.append(row | paired_difference(ours, level[level["value"] == reference], "score"))
    if not any(row["difference_n"] for row in rows if row["value"] != reference):
        raise RunError(
            f"compare={key}: nothing to compare: runs with {reference} differ from all others in "
            f"{', '.join(SIDE_BY_SIDE)} or seed. Name a setting in which such runs agree; scan levels are "
            "compared without `compare`."
        )
    return pd.DataFrame(rows, columns=COMPARISON_COLUMNS)


def comparison_to_markdown(table: pd.DataFrame, key: str, reference: str) -> str:
    """Return the comparison as a Markdown table, with differences in percentage points."""
    notes = Footnotes()

    def difference(row: Mapping[Any, Any]) -> str:
        return NOTHING if row["value"] == reference else difference_cell(row, notes)

    text = markdown_table(
        table,
        {
            "dataset": lambda row: task_title(row["dataset"], row["label"], row["model"]),
            "scan": lambda row: describe_scan(row["scan"]),
            key: lambda row: row["value"],
            "n": lambda row: notes.count(row["n"]),
            f"last {metric_of(table).words}": lambda row: spread_cell(row, "score", percent),
            "majority class": lambda row: percent(row["majority_share"]),
            f"difference to {reference} (points, ± half its 95 % interval: {SEEDS_ALONE})": difference,
        },
    )
    return f"{text}\n\n{notes}" if str(notes) else text


def _value(run: Mapping[Any, Any], key: str) -> Any:
    value: Any = run["config"]
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise RunError(f"compare={key}: the configuration of {run['run_id']} has no such key.")
        value = value[part]
    return value


def _as_text(values: Sequence[Any]) -> list[str]:
    """Format values: a group of settings as `error_bounded, error_model=paper`, anything else as it is."""
    groups = [value for value in values if isinstance(value, Mapping)]
    return [
        ", ".join([str(value.get("name")), *changed_settings(value, groups)])
        if isinstance(value, Mapping)
        else str(value)
        for value in values
    ]


def draw_comparison(table: pd.DataFrame, reference: str) -> Figure:
    """Draw points against the reference of the same seed: a panel per SIDE_BY_SIDE, a line per other value.

    `table` is the result of `compare_setting`; whiskers are 95 % intervals.
    """
    drawn = [
        (title, group, rows[rows["value"] != reference])
        for title, group, rows in per_setting(table, SIDE_BY_SIDE)
    ]
    heights = [_AROUND_IN + _LINE_IN * len(rows) for _, _, rows in drawn]
    with style():
        figure = new_figure(_WIDTH_IN, sum(heights))
        axes = figure.subplots(len(drawn), squeeze=False, height_ratios=heights)[:, 0]
        for ax, (title, group, rows) in zip(axes, drawn, strict=True):
            difference_lines(ax, rows, rows["value"].tolist())
            ax.set_xlabel(f"points of {metric_of(rows).words} against {reference}, same seed")
            facts = f"{describe_scan(group['scan'])}, storage {group['storage']}, n = {span(rows['n'])}"
            panel_title(ax, title, facts)
        footer(
            figure, "whiskers: 95 % intervals over seeds or folds; linear within 3 points, logarithmic beyond"
        )
    return figure
