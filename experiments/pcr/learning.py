"""The search for a baseline's learning rate and crop scale, the resulting target, and tests of final models.

The search uses only runs of `scan=baseline` that were evaluated on the `tune` split, so that reported scores
have no part in the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.distinguishing import describe_settings, titles_apart
from pcr_exp.analysis.figure import (
    BELOW,
    footer,
    marks_without_bars,
    new_figure,
    panel_title,
    points_axis,
    single_run_mark,
)
from pcr_exp.analysis.frame import GROUP_KEYS, LEVEL, SCAN_AND_SEED, by_level, per_setting, setting_keys
from pcr_exp.analysis.front import TESTED_AT
from pcr_exp.analysis.intervals import INFLUENCES
from pcr_exp.analysis.marks import name_lines
from pcr_exp.analysis.over_images import with_intervals
from pcr_exp.analysis.page import Output, joined, sections
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.runs import evaluations_at
from pcr_exp.analysis.statistics import DIFFERENCE, describe_interval, distinct_seeds, spread
from pcr_exp.analysis.style import INK, MUTED, OTHER_STYLES, describe_scan, names_of, scan_levels, style
from pcr_exp.analysis.tables import (
    NOTHING,
    Cell,
    Footnotes,
    difference_cell,
    markdown_table,
    percent,
    spread_cell,
)

MARGIN = 0.02
"""A target is the score of the chosen baseline minus this; 0.02 is 2 points."""

GROUP_COLUMNS = ["dataset", "label", "model", "image_size_px"]

_SEARCH = [*GROUP_COLUMNS, "headline", "epochs", "setting"]
"""Columns that the runs of one search share. `setting` stands for all that it does not tune."""

TUNED_COLUMNS = ["learning_rate", "crop_scale_min"]

_TUNED = (*SCAN_AND_SEED, "training.learning_rate", "dataset.augment")

FAIR_COLUMNS = [
    *(*GROUP_COLUMNS, *TUNED_COLUMNS, "n", "num_tune", "epochs", "final_score", "final_loss", "train_loss"),
    *("chosen", "target_score", "headline", "git_sha", "setting"),
]


def fair_baseline_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return FAIR_COLUMNS from `run_frame`: one row per search, learning rate and crop scale.

    Scores and losses are of the final model on the `tune` split, means over `n` seeds. `chosen` is the row
    with the highest score, and of equal ones the lowest loss. `target_score` is that score minus MARGIN. It
    is the target of the (dataset, label, model, input size) in all comparisons.
    """
    search = _searches(runs)
    if search.empty:
        return pd.DataFrame(columns=FAIR_COLUMNS)
    found = pd.DataFrame(list(map(_row, search.to_dict("records"))))
    by_setting = found.groupby([*_SEARCH, *TUNED_COLUMNS], sort=True)
    same = dict.fromkeys(("num_tune", "git_sha"), "first")
    means = dict.fromkeys(("final_score", "final_loss", "train_loss"), "mean")
    table = by_setting.agg({"seed": "nunique", **same, **means}).reset_index().rename(columns={"seed": "n"})
    best_first = table.sort_values(["final_score", "final_loss"], ascending=[False, True])
    best = best_first.groupby(_SEARCH).head(1).index
    table["chosen"] = table.index.isin(best)
    target = table.groupby(_SEARCH)["final_score"].transform("max") - MARGIN
    return table.assign(target_score=target.round(4))[FAIR_COLUMNS]


def write_fair_baseline(output: Output) -> None:
    """Write fair_baseline.csv and fair_baseline.md, if the runs include a search."""
    table = fair_baseline_table(output.frame)
    if len(table):
        words = describe_settings(_searches(output.frame), _TUNED)
        output.table("fair_baseline", table, fair_baseline_to_markdown(table, words))


def _searches(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of searches, with what they share as `setting`."""
    search = runs[[_is_search(run) for run in runs.to_dict("records")]]
    return search.assign(setting=setting_keys(search, _TUNED))


def fair_baseline_to_markdown(table: pd.DataFrame, words: Mapping[str, str]) -> str:
    """Return a table per search, with the chosen row in bold; `words` tell searches of one task apart."""
    parts = []
    searches = list(table.groupby(_SEARCH, sort=True))
    titles = [f"{d}, {label}, {model}, {size_px} px" for (d, label, model, size_px, *_), _ in searches]
    keys = [{"setting": key[-1]} for key, _ in searches]
    for title, (_, rows) in zip(
        titles_apart(list(zip(titles, keys, strict=True)), words), searches, strict=True
    ):
        first = rows.iloc[0]
        columns = {
            "learning rate": lambda row: _bold(f"{row['learning_rate']:g}", row),
            "crop scale from": lambda row: _bold(f"{row['crop_scale_min']:g}", row),
            "seeds": lambda row: str(row["n"]),
            f"{first['headline']} on tune": lambda row: _bold(percent(row["final_score"]), row),
            "loss on tune": lambda row: f"{row['final_loss']:.3f}",
            "train loss": lambda row: f"{row['train_loss']:.3f}",
        }
        parts.append(
            f"### {title}\n\n{markdown_table(rows, columns)}\n\n"
            f"{first['num_tune']} images to tune by, {first['epochs']} epochs; target: "
            f"{percent(first['target_score'])}, the chosen baseline less {100 * MARGIN:g} points.\n"
        )
    return "\n".join(parts)


def _bold(words: str, row: Any) -> str:
    return f"**{words}**" if row["chosen"] else words


def _is_search(run: Mapping[Any, Any]) -> bool:
    split = run["config"]["training"].get("eval_split", "val")  # missing in old runs
    return bool(split == "tune" and run["encoding"] == "baseline")


def _row(run: Mapping[Any, Any]) -> dict[str, Any]:
    config, last = run["config"], evaluations_at("full", run["rows"])[-1]
    return {
        **{key: run[key] for key in ("dataset", "label", "model", "setting", "seed", "headline", "git_sha")},
        "image_size_px": run["image_px"],
        "learning_rate": config["training"]["learning_rate"],
        "crop_scale_min": config["dataset"]["augment"]["crop_scale"][0],
        "num_tune": last["num_val"],
        "epochs": last["epoch"],
        "final_score": last["val_score"],
        "final_loss": last["val_loss"],
        "train_loss": last["train_loss"],
    }


DEPLOYMENT_COLUMNS = [
    *(*GROUP_KEYS, *LEVEL, "tested_at", "n", "headline"),
    *("score_mean", "score_min", "score_max", *DIFFERENCE),
]


def deployment_table(runs: pd.DataFrame, metric: str | None = None) -> pd.DataFrame:
    """Return DEPLOYMENT_COLUMNS from `run_frame`: one row per setting, scan level and fidelity of the test.

    The metric is the primary one, or another that the evaluations have.

    `score_*` describes the final models of `n` seeds or folds. `difference_*` is the score minus the same
    seed's baseline at full fidelity. Its interval covers images too, if all runs saved predictions. Runs
    that were not evaluated at their own group are left out.
    """
    found = pd.DataFrame([row for run in runs.to_dict("records") for row in _rows(run, metric)])
    if found.empty:
        return pd.DataFrame(columns=DEPLOYMENT_COLUMNS)
    rows = []
    for group, of_group in found.groupby(GROUP_KEYS, sort=True):
        reference = of_group[(of_group["encoding"] == "baseline") & (of_group["tested_at"] == "full")]
        differences = {
            str(tested_at): with_intervals(alike, reference, "score", str(tested_at))
            for tested_at, alike in of_group.groupby("tested_at")
        }
        for (scan, tested_at), seeds in of_group.groupby(["scan", "tested_at"], sort=True):
            first = seeds.iloc[0]
            rows.append(
                {
                    **dict(zip(GROUP_KEYS, group, strict=True)),
                    **{key: first[key] for key in (*LEVEL, "headline")},
                    "tested_at": tested_at,
                    "n": len(distinct_seeds(seeds)),
                    **spread(distinct_seeds(seeds), ["score"]),
                    **differences[str(tested_at)][scan],
                }
            )
    return by_level(pd.DataFrame(rows), GROUP_KEYS, ["scan", "tested_at"])[DEPLOYMENT_COLUMNS]


def write_deployment(output: Output) -> None:
    """Write deployment.{csv,md} and the figure `differences` of runs that were evaluated at their own group.

    `deployment_<metric>.{csv,md}` are the same tables by other metrics.
    """
    table = deployment_table(output.frame)
    if table.empty:
        return
    words = describe_settings(output.frame)
    output.table("deployment", table, deployment_to_markdown(table, words))
    for metric in other_metrics(output.frame):
        by_metric = deployment_table(output.frame, metric)
        output.table(f"deployment_{metric}", by_metric, deployment_to_markdown(by_metric, words))
    if len(compared(table)):  # a level has a baseline to compare with
        shows = "Accuracy lost or gained against the baseline"
        output.figure(DIFFERENCES, shows, table, draw_differences)


def metric_of_file(stem: str) -> str | None:
    """Return the metric of a `write_deployment` file, from its stem; None: the primary metric of its runs."""
    table, _, metric = stem.partition("_")
    return metric if table == "deployment" and metric else None


def other_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the metrics besides the primary one that every run's last evaluation has."""
    evaluated = [evaluations_at("full", run["rows"]) for run in runs.to_dict("records")]
    last = [rows[-1] for rows in evaluated if rows]
    return [name for name in INFLUENCES if last and all(row.get(f"val_{name}") is not None for row in last)]


def deployment_to_markdown(table: pd.DataFrame, words: Mapping[str, str] | None = None) -> str:
    """Return a table per setting, with scan levels in rows and fidelities of the test in columns.

    `words`, from `distinguishing.describe_settings`, name the settings in titles that would be alike.
    """

    def facts(group: Mapping[str, Any], rows: pd.DataFrame) -> str:
        return (
            f"Final validation {metric_of(rows).words}, mean over n runs (smallest to largest): images in "
            "full, or read as in training. Differences, in points, are to the baseline in full, of the same "
            f"seed or fold, ± half their 95 % interval ({describe_interval(rows)}); "
            f"setting {group['setting']}."
        )

    by_scan = sections(table, GROUP_KEYS, words, facts, _columns, lambda rows: rows.drop_duplicates("scan"))
    return joined(by_scan)


def _columns(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    cells: dict[str, Cell] = {
        "trained at": lambda row: describe_scan(row["scan"]),
        "n": lambda row: notes.count(row["n"]),
    }
    for tested_at in [tested_at for tested_at in TESTED_AT if tested_at in set(rows["tested_at"])]:
        words = TESTED_AT[tested_at]
        cells |= _cells_of(rows[rows["tested_at"] == tested_at], words, notes)
    return cells


def _cells_of(rows: pd.DataFrame, words: str, notes: Footnotes) -> dict[str, Cell]:
    by_scan = {row["scan"]: row for row in rows.to_dict("records")}

    def difference(level: object) -> str:
        row = by_scan[level]
        same = row["encoding"] == "baseline" and row["tested_at"] == "full"
        return NOTHING if same else difference_cell(row, notes)

    return {
        f"tested {words}": lambda row: spread_cell(by_scan[row["scan"]], "score", percent),
        f"difference {words}": lambda row: difference(row["scan"]),
    }


def _rows(run: Mapping[Any, Any], metric: str | None) -> list[dict[str, object]]:
    if not evaluations_at("same", run["rows"]):
        return []
    kept = {key: run[key] for key in ("run_id", *GROUP_KEYS, *LEVEL, "seed", "fold", "predictions")}
    score = f"val_{metric}" if metric else "val_score"
    return [
        {**kept, "headline": metric or run["headline"], "tested_at": tested_at, "score": evaluated[-1][score]}
        for tested_at in TESTED_AT
        if (evaluated := evaluations_at(tested_at, run["rows"]))
    ]


DIFFERENCES = "differences"
_WORDS = {
    "full": "tested in full",
    "same": "tested as read in training",
    "renewed": "tested in full, BatchNorm renewed",
}
_STYLES = dict(zip(_WORDS, [(INK, "o"), *OTHER_STYLES[:2]], strict=True))
_WIDTH_IN, _LINE_IN, _AROUND_IN = 6.8, 0.42, 1.9
_BESIDE = 0.18
"""Half the distance between the marks of two fidelities, as a share of a line's height."""


def draw_differences(table: pd.DataFrame) -> Figure:
    """Draw points against the baseline tested in full: a panel per setting, a line per scan level.

    A line has a mark per fidelity of the test, with its 95 % interval if there is one.
    """
    groups = [(title, rows) for title, _, rows in per_setting(compared(table), GROUP_KEYS)]
    heights = [_AROUND_IN + _LINE_IN * rows["scan"].nunique() for _, rows in groups]
    with style():
        figure = new_figure(_WIDTH_IN, sum(heights))
        axes = figure.subplots(len(groups), squeeze=False, height_ratios=heights)[:, 0]
        for ax, (title, rows) in zip(axes, groups, strict=True):
            _draw_panel(ax, rows)
            panel_title(ax, title, f"95 % intervals: {describe_interval(rows)}")
        footer(figure, "linear within 3 points, logarithmic beyond")
    return figure


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a difference from a baseline of the same seed, without the baseline's own."""
    return table[table["difference_mean"].notna() & (table["encoding"] != "baseline")]


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    levels = [level for level, _ in scan_levels(rows)]
    names, most = names_of(levels), rows["n"].max()
    ways = [way for way in _WORDS if (rows["tested_at"] == way).any()]
    labels = []
    for place, level in enumerate(levels):
        alike = rows[rows["scan"] == level.label]
        labels.append(names[level] + single_run_mark(alike["n"].max(), most))
        for number, way in enumerate(ways):
            for row in alike[alike["tested_at"] == way].to_dict("records"):
                color, marker = _STYLES[way]
                ci95 = row["difference_ci95"]
                ax.errorbar(
                    100 * row["difference_mean"],
                    place + _BESIDE * (2 * number - len(ways) + 1),
                    xerr=None if pd.isna(ci95) else 100 * ci95,
                    color=color,
                    marker=marker,
                    markersize=6.5,
                    elinewidth=1.3,
                    capsize=3,
                    linestyle="none",
                    label=None if place else _WORDS[way],
                )
    ax.axvline(0, color=MUTED, linewidth=1, zorder=1)
    name_lines(ax, labels)
    points_axis(ax, "x")
    ax.set_xlabel(f"points of {metric_of(rows).words} against the baseline in full")
    marks, words = marks_without_bars(ax)
    named = {word: mark for mark, word in zip(marks, words, strict=True) if word.startswith("tested")}
    ax.legend(named.values(), named.keys(), **BELOW, ncols=len(named))
