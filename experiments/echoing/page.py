"""The page of data echoing: its table in Markdown, and all figures that the runs allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.echoing.figures import (
    AXES,
    draw_echo_time,
    draw_fresh_against,
    draw_fresh_to_target,
    draw_score_against_bytes,
    draw_score_at_budget,
    facts,
    in_order,
    name_of,
)
from experiments.echoing.frame import COMPARED, PANEL_KEYS, SERIES_KEYS, echo_frame, tuned
from experiments.results.methods import describe_target
from pcr_exp.analysis.distinguishing import describe_settings
from pcr_exp.analysis.frame import eval_curves
from pcr_exp.analysis.page import Output, joined, sections
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.statistics import describe_interval
from pcr_exp.analysis.style import describe_scan
from pcr_exp.analysis.tables import (
    Cell,
    Footnotes,
    difference_cell,
    kilobytes,
    reached_cell,
    score_cells,
    spread_cell,
    three_figures,
    timed,
)


def write_echo_report(output: Output) -> None:
    """Write echo.csv, echo.md and figures; nothing if no run echoes.

    Each setting (PANEL_KEYS) is a panel of the figures for the first of these in which its runs differ:

    * scan level, or the scan groups that repeats read: `echo_bytes`;
    * echo factor, if there are three or more: `echo_time`, if seconds may be reported;
    * batch size: `echo_batch_size`;
    * shuffle buffer, if a variant has three or more: `echo_buffer`, of such variants;
    * otherwise, or besides if three or more variants have a buffer: the variant, `echo_fresh_to_target` and
      `echo_top1_at_budget`.
    """
    frame = echo_frame(output.frame)
    if frame.empty or (frame["factor"] == 1).all():
        return
    summary = tuned(frame, "fresh_to_target")
    output.table("echo", summary, echo_to_markdown(summary, describe_settings(frame, COMPARED)))
    of_topic: dict[str, pd.DataFrame] = {}
    for _, rows in summary.groupby(PANEL_KEYS):
        for topic, chosen in _topics(rows).items():
            of_topic[topic] = pd.concat([of_topic[topic], chosen]) if topic in of_topic else chosen

    def draw(name: str, shows: str, rows: pd.DataFrame, how: Callable[[pd.DataFrame], Figure]) -> None:
        output.figure(name, shows, rows, how, frame.merge(rows[PANEL_KEYS].drop_duplicates(), on=PANEL_KEYS))

    if "bytes" in of_topic:
        curves = byte_curves(frame, of_topic["bytes"])
        draw("echo_bytes", "Accuracy over bytes read", curves, draw_score_against_bytes)
    if "factor" in of_topic:
        timed = of_topic["factor"].query("timing_excluded_because == ''")
        if len(timed):
            draw("echo_time", "What echoing takes, over the echo factor", timed, draw_echo_time)
    for x in ("batch_size", "buffer"):
        if x in of_topic:
            shows = f"Fresh images to the target over {AXES[x]}"
            draw(f"echo_{x}", shows, of_topic[x], partial(draw_fresh_against, x=x))
    if "variant" in of_topic:
        variants = of_topic["variant"]
        shows = "Fresh images to the target"
        draw("echo_fresh_to_target", shows, variants, draw_fresh_to_target)
        best = tuned(frame[frame["setting"].isin(variants["setting"])], "final_score")
        shows = "Accuracy at equal fresh images"
        draw("echo_top1_at_budget", shows, best, draw_score_at_budget)


def byte_curves(frame: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return mean record_bytes and val_score over seeds, per epoch, of the runs behind rows of `tuned`."""
    keys = [*PANEL_KEYS, *SERIES_KEYS, "learning_rate"]
    shared = ["encoding", "group", "n", "num_rates"]
    facts = chosen[[*keys, *shared, "target_score", "majority_share", "num_classes", "headline"]]
    evaluations = eval_curves(frame)[["run_id", "epoch", "record_bytes", "val_score"]]
    joined = frame[[*keys, "run_id"]].merge(facts, on=keys).merge(evaluations, on="run_id")
    curves = joined.groupby([*facts.columns, "epoch"], sort=True, dropna=False)
    return curves[["record_bytes", "val_score"]].mean().reset_index()


def _topics(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return what the runs of a setting compare, which names its figures, with the rows of each."""
    values = {key: rows[key].nunique() for key in SERIES_KEYS}
    if values["scan"] > 1 or values["repeat_groups"] > 1:
        return {"bytes": rows}
    if values["factor"] > 2:
        return {"factor": rows}
    if values["batch_size"] > 1:
        return {"batch_size": rows}
    of_variant = rows.groupby("variant")["buffer"].transform("nunique")
    if of_variant.max() < 3:
        return {"variant": rows}
    buffered = {"buffer": rows[of_variant > 1]}
    return buffered | ({"variant": rows} if values["variant"] > 2 else {})


def echo_to_markdown(summary: pd.DataFrame, settings: Mapping[str, str] | None = None) -> str:
    """Return a table per panel of `tuned`: means over n seeds (smallest to largest).

    `settings`, from `distinguishing.describe_settings`, name them in titles that would otherwise be equal.
    """
    return joined(sections(summary, PANEL_KEYS, settings, _facts, _columns, in_order))


def _facts(group: Mapping[str, Any], rows: pd.DataFrame) -> str:
    return (
        f"storage {group['storage']}, {facts(rows)}; {describe_target(rows)}; "
        "mean over n seeds (smallest to largest); bytes are of records; "
        f"difference: last {metric_of(rows).words} minus the baseline's (same seed, smallest buffer), "
        f"± half its 95 % interval ({describe_interval(rows)}); {' / '.join(sorted(set(rows['hardware'])))}."
    )


def _columns(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    def rate(measure: str, factor: float) -> Cell:
        def cell(row: Mapping[Any, Any]) -> str:
            scaled = {key: factor * row[key] for key in row if str(key).startswith(f"{measure}_")}
            return spread_cell(scaled, measure, three_figures)

        return timed(notes, cell)

    def until(measure: str, show: Any) -> Cell:
        """Return a cell of examples or bytes, which may be shown even if seconds may not."""

        def cell(row: Mapping[Any, Any]) -> str:
            said = {**row, "timing_excluded_because": ""}
            return reached_cell(said, notes, lambda found: spread_cell(found, measure, show))

        return cell

    return {
        "echo": lambda row: name_of(row, with_factor=True),
        "scan": lambda row: describe_scan(row["scan"]),
        "batch": lambda row: str(row["batch_size"]),
        "n": lambda row: notes.count(row["n"]),
        "updates": lambda row: f"{row['updates']:,}",
        "fresh examples": lambda row: f"{row['fresh']:,}",
        "bytes": lambda row: kilobytes(row["record_bytes_mean"]),
        "fresh examples to target": until("fresh_to_target", "{:,.0f}".format),
        "bytes to target": until("bytes_to_target", kilobytes),
        "seconds to target": lambda row: reached_cell(row, notes, rate("time_to_target_s", 1)),
        "ms per fresh example": rate("s_per_fresh", 1e3),
        **score_cells(rows),
        "difference, points": lambda row: difference_cell(row, notes),
    }
