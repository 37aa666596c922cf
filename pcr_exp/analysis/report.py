"""Everything that the files of runs and measurements allow: tables and figures, in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.figures.accuracy_vs_epoch import draw_accuracy_vs_epoch
from pcr_exp.analysis.figures.bytes_per_group import draw_bytes_per_group
from pcr_exp.analysis.figures.mssim_vs_scan import draw_mssim_vs_scan
from pcr_exp.analysis.figures.save import save_figure
from pcr_exp.analysis.figures.time_to_accuracy import draw_time_to_accuracy
from pcr_exp.analysis.quality_files import load_quality
from pcr_exp.analysis.read_runs import read_runs, unfinished_runs
from pcr_exp.analysis.render import to_markdown
from pcr_exp.analysis.runs_table import eval_curves, runs_frame
from pcr_exp.analysis.summary import summary_table
from pcr_exp.records.atomic import make_folder, write_atomic


@dataclass(frozen=True, slots=True)
class Report:
    """What `write_report` wrote, and the summary for those who want to print it."""

    summary: pd.DataFrame
    unfinished: pd.DataFrame
    figures: list[Path]
    """The PNG of every figure; PDF and CSV lie beside it."""


def write_report(runs_root: str | Path, quality_root: str | Path, out: str | Path) -> Report:
    """Draw the figures and write `runs.csv`, `summary.csv` and `summary.md` into `out`.

    Either root may be missing or empty: what needs it is left out.

    Raises:
        RunError: a run or a measurement on disk is damaged.
    """
    out = Path(out)
    make_folder(out)
    has_runs = Path(runs_root).is_dir()
    runs = read_runs(runs_root) if has_runs else []
    unfinished = unfinished_runs(runs_root) if has_runs else pd.DataFrame()
    quality = load_quality(quality_root)
    frame = runs_frame(runs)
    summary = summary_table(frame, quality)
    write_atomic(out / "runs.csv", [frame.to_csv(index=False).encode()])
    write_atomic(out / "summary.csv", [summary.to_csv(index=False).encode()])
    write_atomic(out / "summary.md", [to_markdown(summary, unfinished).encode()])
    drawn = _drawings(eval_curves(runs), quality)
    paths = [save_figure(figure, data, out, name) for name, figure, data in drawn]
    pngs = [path for written in paths for path in written if path.suffix == ".png"]
    return Report(summary, unfinished, pngs)


def _drawings(curves: pd.DataFrame, quality: pd.DataFrame) -> Iterator[tuple[str, Figure, pd.DataFrame]]:
    """(file name, figure, the rows that it draws)."""
    if not curves.empty:
        yield "time_to_accuracy", draw_time_to_accuracy(curves), curves
        yield "accuracy_vs_epoch", draw_accuracy_vs_epoch(curves), curves
    if not quality.empty:
        yield "mssim_vs_scan", draw_mssim_vs_scan(quality), quality
        yield "bytes_per_group", draw_bytes_per_group(quality), quality
