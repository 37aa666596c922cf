"""Tables and figures of all finished runs and quality measurements on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pcr_exp.analysis.accuracy import draw_accuracy_vs_epoch, draw_time_to_accuracy, with_seconds
from pcr_exp.analysis.distinguishing import describe_settings, with_settings
from pcr_exp.analysis.frame import GROUP_KEYS, RUN_COLUMNS, eval_curves, run_frame, with_more
from pcr_exp.analysis.front import write_front
from pcr_exp.analysis.measured import measured_line
from pcr_exp.analysis.page import Output, Page
from pcr_exp.analysis.policies import write_traces
from pcr_exp.analysis.quality import load_quality, save_quality_figures
from pcr_exp.analysis.runs import read_runs, unfinished_runs
from pcr_exp.analysis.side_by_side import draw_side_by_side, with_totals
from pcr_exp.analysis.summary import scan_comparisons, summary_table, to_markdown
from pcr_exp.errors import RunError


@dataclass(frozen=True, slots=True)
class Report:
    """The runs that `write_report` found, and the files that it wrote."""

    summary: pd.DataFrame
    unfinished: pd.DataFrame
    tables: list[Path]
    figures: list[Path]
    """PDF, PNG and CSV of each."""
    num_lone_groups: int = 0
    """Number of run groups (GROUP_KEYS) left out of scan-level figures because they have a single level."""


def write_report(
    runs_root: str | Path,
    quality_root: str | Path,
    out: str | Path,
    target: float | None = None,
    *,
    pages: Sequence[Page] = (),
    exclusive_only: bool = True,
) -> Report:
    """Write runs.csv, summary.csv, summary.md, and every figure that there is data for, into `out`.

    Either root may be missing or empty, but not both. `target` and `exclusive_only` are as in `read_runs`.
    `pages` are written after the standard ones. Figures of seconds show only runs whose seconds may be
    reported (`reporting_rules.timing_exclusion`).

    Raises:
        RunError: there is nothing to report, or `read_runs` or `load_quality` raised it.
    """
    out = Path(out)
    there = Path(runs_root).is_dir()
    runs = read_runs(runs_root, target, exclusive_only=exclusive_only) if there else []
    unfinished = unfinished_runs(runs_root) if there else pd.DataFrame(columns=["run_id", "status"])
    quality = load_quality(quality_root)
    if not runs and quality.empty:
        raise RunError(
            f"no finished run below {runs_root} and no measurement below {quality_root}: nothing to draw. "
            "Make some with `python -m experiments.train` or `python -m experiments.quality`."
        )
    frame = run_frame(runs, quality)
    summary = summary_table(frame)
    out.mkdir(parents=True, exist_ok=True)
    output, num_lone_groups = Output(frame, out), 0
    if runs:
        output.table("runs", frame[with_more(frame, RUN_COLUMNS)])
        output.table("summary", summary, to_markdown(summary, unfinished, describe_settings(frame)))
        num_lone_groups = _num_groups(frame) - _num_groups(scan_comparisons(frame))
        for write in (_write_levels, write_traces, write_front, *pages):
            write(output)
        for page in (path for path in output.tables if path.suffix == ".md"):
            page.write_text(page.read_text() + measured_line(frame, summary["difference_interval"]))
    if not quality.empty:
        output.figures += save_quality_figures(quality, quality_root, out)
    return Report(summary, unfinished, output.tables, output.figures, num_lone_groups)


def _write_levels(output: Output) -> None:
    frame = output.frame
    curves = with_settings(scan_comparisons(eval_curves(frame)), frame)
    if curves.empty:
        return
    output.figure("accuracy_vs_epoch", "Accuracy over epochs", curves, draw_accuracy_vs_epoch)
    timed = with_seconds(curves)
    if len(timed):
        output.figure("time_to_accuracy", "Accuracy over time", timed, draw_time_to_accuracy)
    listed = scan_comparisons(frame[with_more(frame, RUN_COLUMNS)])
    totals = with_settings(with_totals(listed), frame)
    output.figure("side_by_side", "What each scan level took and reached", totals, draw_side_by_side)


def _num_groups(frame: pd.DataFrame) -> int:
    return len(frame[GROUP_KEYS].drop_duplicates())
