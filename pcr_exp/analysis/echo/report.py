"""The table and every figure of data echoing that finished runs allow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.save import save_figure
from pcr_exp.analysis.echo.bars_figure import draw_fresh_to_target, draw_top1_at_budget
from pcr_exp.analysis.echo.bytes_figure import draw_top1_against_bytes
from pcr_exp.analysis.echo.lines_figure import draw_fresh_against
from pcr_exp.analysis.echo.markdown import echo_to_markdown
from pcr_exp.analysis.echo.table import PANEL_KEYS, SERIES_KEYS, echo_frame, tuned
from pcr_exp.analysis.echo.time_figure import draw_echo_time


def write_echo_report(runs: Sequence[Run], out: str | Path) -> tuple[list[Path], list[Path]]:
    """Write `echo.csv`, `echo.md` and `write_echo_figures`, and return tables and figures.

    Nothing if no run echoes.
    """
    frame = echo_frame(runs)
    if frame.empty or (frame["factor"] == 1).all():
        return [], []
    summary = tuned(frame, "fresh_to_target")
    tables = [Path(out) / "echo.csv", Path(out) / "echo.md"]
    summary.to_csv(tables[0], index=False)
    tables[1].write_text(echo_to_markdown(summary))
    return tables, write_echo_figures(runs, out)


def write_echo_figures(runs: Sequence[Run], out: str | Path) -> list[Path]:
    """Draw what there is data for, as PDF, PNG and CSV in `out`; nothing if no run echoes.

    Each setting (PANEL_KEYS) is a panel of one figure, that of the first of these that its runs differ in:

    * scan level, or what repeats read on to: `echo_bytes`;
    * echo factor, if there are three or more: `echo_time`, if seconds may be said;
    * batch size: `echo_batch_size`; shuffle buffer, if there are three or more: `echo_buffer`;
    * else, the variant: `echo_fresh_to_target` and `echo_top1_at_budget`.
    """
    frame = echo_frame(runs)
    paths: list[Path] = []
    if frame.empty or (frame["factor"] == 1).all():
        return paths
    summary = tuned(frame, "fresh_to_target")
    topics = pd.concat(pd.Series(_topic(rows), index=rows.index) for _, rows in summary.groupby(PANEL_KEYS))
    of_topic = dict(list(summary.groupby(topics)))
    if "bytes" in of_topic:
        curves = byte_curves(runs, of_topic["bytes"])
        paths += save_figure(draw_top1_against_bytes(curves), curves, out, "echo_bytes")
    if "factor" in of_topic:
        timed = of_topic["factor"][of_topic["factor"]["no_seconds"] == ""]
        if len(timed):
            paths += save_figure(draw_echo_time(timed), timed, out, "echo_time")
    for x in ("batch_size", "buffer"):
        if x in of_topic:
            paths += save_figure(draw_fresh_against(of_topic[x], x), of_topic[x], out, f"echo_{x}")
    if "variant" in of_topic:
        variants = of_topic["variant"]
        paths += save_figure(draw_fresh_to_target(variants), variants, out, "echo_fresh_to_target")
        best = tuned(frame[frame["setting"].isin(variants["setting"])], "final_top1")
        paths += save_figure(draw_top1_at_budget(best), best, out, "echo_top1_at_budget")
    return paths


def byte_curves(runs: Sequence[Run], chosen: pd.DataFrame) -> pd.DataFrame:
    """Mean record_bytes and val_top1 over seeds, per epoch, of the runs behind rows of `tuned`."""
    keys = [*PANEL_KEYS, *SERIES_KEYS, "learning_rate"]
    facts = chosen[[*keys, "n", "num_rates", "target_top1", "majority_share", "num_classes"]]
    of_runs = echo_frame(runs)[[*keys, "run_id"]].merge(facts, on=keys)
    evaluations = pd.DataFrame(
        {"run_id": run.manifest.run_id, **{key: row[key] for key in ("epoch", "record_bytes", "val_top1")}}
        for run in runs
        for row in run.eval_rows
    )
    joined = of_runs.merge(evaluations, on="run_id")
    curves = joined.groupby([*facts.columns, "epoch"], sort=True, dropna=False)
    return curves[["record_bytes", "val_top1"]].mean().reset_index()


def _topic(rows: pd.DataFrame) -> str:
    """What the runs of a setting compare, by the name of its figure."""
    values = {key: rows[key].nunique() for key in SERIES_KEYS}
    if values["scan"] > 1 or values["repeat_groups"] > 1:
        return "bytes"
    if values["factor"] > 2:
        return "factor"
    if values["batch_size"] > 1:
        return "batch_size"
    return "buffer" if values["buffer"] > 2 else "variant"
