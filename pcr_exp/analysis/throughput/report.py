"""Tables and figures of a throughput measurement, from its files."""

from __future__ import annotations

from pathlib import Path

from pcr_exp.analysis.core.save import save_figure
from pcr_exp.analysis.throughput.files import load_throughput
from pcr_exp.analysis.throughput.formats_figure import draw_formats
from pcr_exp.analysis.throughput.loaders_figure import draw_file_per_image, draw_loaders, is_charged
from pcr_exp.analysis.throughput.table import to_markdown
from pcr_exp.analysis.throughput.throughput import summarise_throughput
from pcr_exp.analysis.throughput.throughput_vs_scan_figure import draw_throughput_vs_scan
from pcr_exp.measuring.peers.catalog import is_ours

TABLE_FILE = "throughput.md"
SUMMARY_FILE = "throughput_summary.csv"


def report_throughput(folder: str | Path) -> list[Path]:
    """Write throughput_summary.csv, throughput.md and every figure that there is data for; returns all files.

    Raises:
        RunError: the measurement in `folder` is missing or damaged.
    """
    folder = Path(folder)
    measured = load_throughput(folder)
    summary = summarise_throughput(measured.rows)
    tables = [folder / SUMMARY_FILE, folder / TABLE_FILE]
    summary.to_csv(tables[0], index=False)
    tables[1].write_text(to_markdown(measured))
    figures = [
        *save_figure(draw_loaders(summary), summary, folder, "loaders"),
        *save_figure(draw_formats(measured.formats), measured.formats, folder, "space_and_build_time"),
    ]
    if summary["loader"].map(is_ours).any():
        figures += save_figure(draw_throughput_vs_scan(summary), summary, folder, "throughput_vs_scan")
    if is_charged(summary):
        figures += save_figure(draw_file_per_image(summary), summary, folder, "file_per_image")
    return [*tables, *figures]
