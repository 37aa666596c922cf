"""Runs that differ in one setting, compared seed by seed: table, page and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pcr_exp.analysis.accuracy import SECONDS_LABEL, mean_over_seeds, with_seconds
from pcr_exp.analysis.figure import (
    BELOW,
    LEGEND_LINE_IN,
    accuracy_axis,
    footer,
    panel_title,
    panels,
    target_line,
)
from pcr_exp.analysis.frame import eval_curves, per_setting
from pcr_exp.analysis.marks import guessing_lines
from pcr_exp.analysis.primary_metric import headline_of
from pcr_exp.analysis.statistics import DIFFERENCE, REPEAT, SEEDS_ALONE, paired_difference, spread
from pcr_exp.analysis.style import INK, OTHER_LOOKS, scan_words, style
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
"""What runs share that are compared."""
_FACTS = ["majority_share", "headline"]
COMPARISON_COLUMNS = [
    *SIDE_BY_SIDE,
    "value",
    "n",
    "score_mean",
    "score_min",
    "score_max",
    *DIFFERENCE,
    "majority_share",
    "headline",
]


def compare_setting(runs: pd.DataFrame, key: str, reference: str) -> pd.DataFrame:
    """One row per dataset, label, model, storage, scan and value of a configuration key.

    `score` is the headline of the finished model, over seeds. `difference` is that less the score of
    the same seed at the value `reference`: mean over the seeds that have both, and half its 95 % interval.

    Args:
        runs: `run_frame` of them.
        key: dotted, as on the command line: `loader.decode`; or a group, `activations`, whose values are the
            names of its options, with the settings in which runs of one name differ.
        reference: the value that the others are compared with, as text.

    Raises:
        RunError: a run has no such key, none has the reference, or two differ in something else.
    """
    frame = runs.assign(score=runs["final_score"], value=_values(runs, key))
    if frame.empty or reference not in set(frame["value"]):
        found = sorted(set(frame["value"])) if len(frame) else "no finished run"
        raise RunError(f"compare={key} reference={reference}: no run has this value; found {found}.")
    # Runs that differ in workers or hardware alone learned the same: one of them counts.
    repeat = [key for key in REPEAT if key in frame]
    frame = frame.drop_duplicates([*SIDE_BY_SIDE, "value", *repeat, "setting"])
    twice = frame[frame.duplicated([*SIDE_BY_SIDE, "value", *repeat], keep=False)]
    if len(twice):
        raise RunError(
            f"compare={key}: runs differ in more than it: {', '.join(twice['run_id'].head(2))}. Put runs "
            "that are to be compared into a folder of their own (runs_root)."
        )
    rows = []
    for _, level in frame.groupby(SIDE_BY_SIDE):
        for value in reference_first(level["value"], reference):
            ours = level[level["value"] == value]
            row: dict[Any, Any] = {**level.iloc[0][SIDE_BY_SIDE].to_dict(), "value": value, "n": len(ours)}
            row |= level.iloc[0][_FACTS].to_dict() | spread(ours, ["score"])
            rows.append(row | paired_difference(ours, level[level["value"] == reference], "score"))
    return pd.DataFrame(rows, columns=COMPARISON_COLUMNS)


def comparison_curves(runs: pd.DataFrame, key: str) -> pd.DataFrame:
    """One row per evaluation (`eval_curves`), with the run's value of a configuration key as `value`.

    Raises:
        RunError: a run has no such key.
    """
    curves, values = eval_curves(runs), dict(zip(runs["run_id"], _values(runs, key), strict=True))
    return curves.assign(value=curves["run_id"].map(values))


def comparison_to_markdown(table: pd.DataFrame, key: str, reference: str) -> str:
    """The table for people; differences in percentage points."""
    notes = Footnotes()

    def difference(row: Mapping[Any, Any]) -> str:
        return NOTHING if row["value"] == reference else difference_cell(row, notes)

    text = markdown_table(
        table,
        {
            "dataset": lambda row: task_title(row["dataset"], row["label"], row["model"]),
            "scan": lambda row: scan_words(row["scan"]),
            key: lambda row: row["value"],
            "n": lambda row: notes.count(row["n"]),
            f"last {headline_of(table).words}": lambda row: spread_cell(row, "score", percent),
            "majority class": lambda row: percent(row["majority_share"]),
            f"difference to {reference} (points, ± half its 95 % interval: {SEEDS_ALONE})": difference,
        },
    )
    return f"{text}\n\n{notes}" if str(notes) else text


def _values(runs: pd.DataFrame, key: str) -> list[str]:
    return _as_text([_value(run, key) for run in runs[["run_id", "config"]].to_dict("records")])


def _value(run: Mapping[Any, Any], key: str) -> Any:
    value: Any = run["config"]
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise RunError(f"compare={key}: the configuration of {run['run_id']} has no such key.")
        value = value[part]
    return value


def _as_text(values: Sequence[Any]) -> list[str]:
    """`error_bounded, error_model=paper` for a group of settings; anything else as it is."""
    groups = [value for value in values if isinstance(value, Mapping)]
    texts = []
    for value in values:
        if not isinstance(value, Mapping):
            texts.append(str(value))
            continue
        alike = [group for group in groups if group.get("name") == value.get("name")]
        differing = [key for key in value if any(group.get(key) != value[key] for group in alike)]
        texts.append(", ".join([str(value.get("name")), *(f"{key}={value[key]}" for key in differing)]))
    return texts


def reference_first(values: Iterable[str], reference: str) -> list[str]:
    """Distinct values, the reference before the others."""
    return sorted(set(values), key=lambda value: (value != reference, value))


def draw_comparison(curves: pd.DataFrame, key: str, reference: str) -> Figure:
    """Per SIDE_BY_SIDE of `comparison_curves`, score against seconds and against epochs.

    Seeds are thin, their mean is thick. The reference is dashed and on top: a value that coincides with it
    shows through its gaps. Where no seconds may be said, there is the panel of epochs alone.
    """
    values = [value for value in reference_first(curves["value"], reference) if value != reference]
    looks = {value: OTHER_LOOKS[i % len(OTHER_LOOKS)] for i, value in enumerate(values)}
    drawn = [
        (title, group, rows, x, x_label)
        for title, group, alike in per_setting(curves, SIDE_BY_SIDE)
        for rows, x, x_label in (
            (with_seconds(alike), "seconds", SECONDS_LABEL),
            (alike, "epoch", "epochs completed"),
        )
        if len(rows)
    ]
    has_seconds = any(x == "seconds" for _, _, _, x, _ in drawn)
    with style():
        figure, axes = panels(len(drawn), max_columns=2 if has_seconds else 1)
        for ax, (title, group, rows, x, x_label) in zip(axes, drawn, strict=True):
            for value in reference_first(rows["value"], reference):
                _draw_value(ax, rows[rows["value"] == value], x, value, looks.get(value))
            target_line(ax, rows["target_score"].iloc[0])
            guessing_lines(ax, rows)
            ax.set_xlim(left=0)
            ax.set_xlabel(x_label)
            accuracy_axis(ax, rows)
            seeds = span(rows.groupby("value")["seed"].nunique())
            facts = f"{scan_words(group['scan'])}, storage {group['storage']}, n = {seeds}"
            panel_title(ax, title, facts)
            if x == "epoch":
                ax.xaxis.set_major_locator(MaxNLocator(integer=True))
                ax.legend(**BELOW, title=key, alignment="left")
        width, height = figure.get_size_inches()
        num_rows = -(-len(drawn) // (2 if has_seconds else 1))
        lines = 1 + curves["value"].nunique()
        figure.set_size_inches(width, height + num_rows * lines * LEGEND_LINE_IN)
        footer(figure, "thin: seeds; thick: their mean")
    return figure


def _draw_value(ax: Axes, rows: pd.DataFrame, x: str, value: str, look: tuple[str, str] | None) -> None:
    color, marker = look or (INK, "s")
    for _, run in rows.groupby("run_id"):
        ax.plot(run[x], run["val_score"], color=color, linewidth=0.8, alpha=0.4)
    mean = mean_over_seeds(rows, x, "val_score")
    more: dict[str, Any] = {"linestyle": (0, (4.0, 1.6)), "zorder": 4} if look is None else {}
    ax.plot(mean[x], mean["val_score"], color=color, marker=marker, label=value, **more)
