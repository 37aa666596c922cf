"""Equal bytes, read as fewer images, fewer epochs, fewer scans of all images, or a mixture of scans.

The paper does not cover this, as it compares trainings with equal epochs. It matters if reading is the cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.pcr.learning import other_metrics
from experiments.results.methods import page_frame
from pcr_exp.analysis.figure import footer, new_figure, panel_title, single_run_mark
from pcr_exp.analysis.marks import difference_lines
from pcr_exp.analysis.over_images import with_intervals
from pcr_exp.analysis.page import Output, joined, sections
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.statistics import (
    DIFFERENCE,
    by_repeat,
    describe_interval,
    distinct_seeds,
    repeat_of,
    spread,
)
from pcr_exp.analysis.style import describe_scan, style
from pcr_exp.analysis.tables import Cell, Footnotes, difference_cell, percent, spread_cell
from pcr_exp.policies.schedule import probabilities
from pcr_exp.training.task import primary_metric_named

PANEL_KEYS = ["dataset", "label", "model", "setting"]
COMPARED = (
    *("scan", "seed", "dataset.fold", "dataset.max_train_images", "images"),
    *("training.epochs", "training.eval_every_epochs", "training.warmup_epochs"),
)
BUDGETS = (0.5, 0.25)
"""Byte budgets, as shares of the bytes that a whole training on the original images reads."""
NEAR = 0.12
"""Maximum relative difference between the bytes of a way and its budget."""
COLUMNS = [
    *(*PANEL_KEYS, "budget", "way", "scan", "n", "epochs", "num_train", "headline"),
    *("bytes_share", "read_bytes_mean", "score_mean", "score_min", "score_max", *DIFFERENCE),
]


def equal_bytes_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS from `run_frame`: a row per way of each budget and metric, and per whole training.

    Whole trainings are of the baseline, with the most epochs on the most images; their `budget` is 1.
    `bytes_share`: mean record bytes of n runs over the whole training's. `difference_*`: last score at full
    fidelity minus the whole training's of the same seed and fold. Metrics (`headline`): the primary one, and
    the others that all evaluations of a dataset have. Empty unless a budget has two ways.
    """
    found = [
        _of_metric(runs, metric)
        for _, runs in frame.groupby("dataset")
        for metric in (None, *other_metrics(runs))
    ]
    table = pd.concat(found, ignore_index=True)
    ascending = [True] * len(PANEL_KEYS) + [False, True]
    return table.sort_values([*PANEL_KEYS, "budget", "way"], ascending=ascending, ignore_index=True)


def _of_metric(frame: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for panel in _panels(frame, metric):
        differences = with_intervals(panel.assign(scan=panel["way"]), panel[panel["budget"] == 1], "score")
        shared = {key: panel[key].iloc[0] for key in PANEL_KEYS}
        rows += [
            shared | _row(alike) | differences[way] for (_, way), alike in panel.groupby(["budget", "way"])
        ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _panels(frame: pd.DataFrame, metric: str | None) -> Iterator[pd.DataFrame]:
    """Yield the compared runs of each setting, with `way`, `budget` and `bytes_share`.

    Whole trainings are only those of seeds and folds that another way has, too.
    """
    runs = page_frame(frame, partial(_columns_of_run, metric=metric), less=COMPARED)
    for _, panel in runs.groupby(PANEL_KEYS, sort=True):
        most = panel[(panel["num_train"] > 0.9 * panel["num_train"].max()) & (panel["scan"] == "baseline")]
        whole = most[most["epochs"] == most["epochs"].max()]
        if whole.empty:
            continue
        panel = panel.assign(way=[_way(run, whole.iloc[0]) for run in panel.to_dict("records")])
        share = panel.groupby("way")["read_bytes"].transform("mean") / whole["read_bytes"].mean()
        panel = panel.assign(bytes_share=share, budget=share.map(_budget))
        panel.loc[panel["run_id"].isin(whole["run_id"]), "budget"] = 1.0
        panel = panel.dropna(subset="budget")
        ways = by_repeat(panel[panel["budget"] < 1]).index
        panel = panel.set_index(repeat_of(panel), drop=False)
        panel = panel[panel.index.isin(ways)].reset_index(drop=True)
        if (panel[panel["budget"] < 1].groupby("budget")["way"].nunique() > 1).any():
            yield panel


def _columns_of_run(run: Mapping[Any, Any], metric: str | None) -> dict[str, Any]:
    last = run["rows"][-1]
    evaluated = [row for row in run["rows"] if row.get("eval_group") == "full"]
    return {
        "epochs": run["config"]["training"]["epochs"],
        "num_train": run["num_train"],
        "read_bytes": last["record_bytes"],
        "mixed": _mixed(run["config"]["scan"]),
        "headline": metric or run["headline"],
        "score": evaluated[-1][f"val_{metric}" if metric else "val_score"],
    }


def _mixed(scan: Mapping[str, Any]) -> str:
    """Describe a mixture, as `72 % at group 2, 28 % at group 5`; empty for levels with short labels."""
    if scan["name"] != "mixture":
        return ""
    shares = probabilities(scan["candidates"], scan["group"], scan["weights"])
    of_groups = zip(scan["candidates"], shares, strict=True)
    return ", ".join(f"{100 * share:.0f} % at group {group}" for group, share in of_groups if share > 0)


def _way(run: Mapping[Any, Any], whole: pd.Series) -> str:
    images = run["num_train"] / whole["num_train"]
    fewer = f"{100 * images:.0f} % of the images" if images < 0.9 else ""
    epochs = f"{run['epochs']} epochs" if run["epochs"] != whole["epochs"] else ""
    scan = "" if run["scan"] == "baseline" else run["mixed"] or describe_scan(run["scan"])
    return ", ".join(part for part in (scan, fewer, epochs) if part) or "whole"


def _budget(share: float) -> float | None:
    return next((budget for budget in BUDGETS if abs(share - budget) <= NEAR * budget), None)


def _row(alike: pd.DataFrame) -> dict[str, Any]:
    same = ("budget", "way", "scan", "epochs", "headline", "bytes_share")
    seeds = distinct_seeds(alike)
    return {
        **{key: alike[key].iloc[0] for key in same},
        "n": len(seeds),
        "num_train": round(alike["num_train"].mean()),
        "read_bytes_mean": alike["read_bytes"].mean(),
        **spread(seeds, ["score"]),
    }


def write_equal_bytes(output: Output) -> None:
    """Write equal_bytes.{csv,md} and the figure `equal_bytes`, if a budget has two ways."""
    table = equal_bytes_table(output.frame)
    if len(table):
        output.table("equal_bytes", table, equal_bytes_to_markdown(table))
        drawn = pd.concat(_panels(output.frame, None))
        output.figure(
            "equal_bytes",
            "Accuracy for as many bytes, read in other ways",
            table,
            draw_equal_bytes,
            drawn=drawn.assign(setting=drawn["way"]),
        )


def equal_bytes_to_markdown(table: pd.DataFrame) -> str:
    """Return a table per setting: the ways of each budget, by every metric."""

    def facts(group: Mapping[str, Any], rows: pd.DataFrame) -> str:
        return (
            "Final validation scores in full, mean over n runs (smallest to largest). Shares are of the "
            "record bytes that the whole training reads; differences, in points, are to it, of the same "
            f"seed or fold, ± half their 95 % interval ({describe_interval(rows)}); setting "
            f"{group['setting']}."
        )

    return joined(sections(table, PANEL_KEYS, None, facts, _cells, lambda rows: rows.drop_duplicates("way")))


def _cells(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    cells: dict[str, Cell] = {
        "bytes of the whole": lambda row: f"{100 * row['bytes_share']:.0f} %",
        "way": lambda row: row["way"],
        "n": lambda row: notes.count(row["n"]),
        "images": lambda row: f"{row['num_train']:,}",
        "epochs": lambda row: str(row["epochs"]),
        "read": lambda row: f"{row['read_bytes_mean'] / 1e6:.1f} MB",
    }
    for name, of_metric in rows.groupby("headline", sort=False):
        words = primary_metric_named(str(name)).words
        by_way = {row["way"]: row for row in of_metric.to_dict("records")}
        cells |= {words: _score(by_way), f"difference in {words}": _difference(by_way, notes)}
    return cells


def _score(by_way: Mapping[str, Mapping[Any, Any]]) -> Cell:
    return lambda row: spread_cell(by_way[row["way"]], "score", percent)


def _difference(by_way: Mapping[str, Mapping[Any, Any]], notes: Footnotes) -> Cell:
    return lambda row: "-" if row["way"] == "whole" else difference_cell(by_way[row["way"]], notes)


def draw_equal_bytes(table: pd.DataFrame) -> Figure:
    """Draw points against the whole training with 95 % intervals, one line per way.

    Each setting and metric has a row of panels, with a panel per budget that it has.
    """
    less = table[table["budget"] < 1]
    metrics = [rows for _, rows in less.groupby([*PANEL_KEYS, "headline"], sort=False)]
    budgets = list(dict.fromkeys(less["budget"]))
    heights = [1.2 + 0.34 * rows.groupby("budget")["way"].nunique().max() for rows in metrics]
    with style():
        figure = new_figure(5.4 * len(budgets), sum(heights))
        axes = figure.subplots(len(metrics), len(budgets), squeeze=False, height_ratios=heights)
        for of_row, of_metric in zip(axes, metrics, strict=True):
            first = of_metric.iloc[0]
            whose = f" of {first['dataset'].partition(',')[0]}" if less["dataset"].nunique() > 1 else ""
            for ax, budget in zip(of_row, budgets, strict=True):
                rows = of_metric[of_metric["budget"] == budget]
                if rows.empty:
                    ax.set_axis_off()
                    continue
                _draw_budget(ax, rows)
                panel_title(ax, f"{100 * budget:.0f} % of the bytes", metric_of(rows).words + whose)
        footer(figure, f"points against the whole training, with 95 % intervals: {describe_interval(less)}")
    return figure


def _draw_budget(ax: Axes, rows: pd.DataFrame) -> None:
    most = rows["n"].max()
    names = [f"{row['way']}{single_run_mark(row['n'], most)}" for row in rows.to_dict("records")]
    difference_lines(ax, rows, names)
    ax.set_xlabel(f"points of {metric_of(rows).words}")
