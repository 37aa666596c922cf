"""The tables and every figure of gradient compression that finished runs allow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.save import save_figure
from pcr_exp.analysis.gradients.bits_figure import draw_bits_over_training
from pcr_exp.analysis.gradients.curves import accuracy_curves, bits_curves
from pcr_exp.analysis.gradients.markdown import gradients_to_markdown
from pcr_exp.analysis.gradients.speedup_figure import draw_speedups
from pcr_exp.analysis.gradients.table import REFERENCE, gradient_frame, gradient_table
from pcr_exp.analysis.gradients.time_figure import draw_accuracy_against_time
from pcr_exp.analysis.gradients.traffic_figure import draw_traffic_by_sparsity, traffic_by_sparsity


def write_gradient_report(runs: Sequence[Run], out: Path) -> tuple[list[Path], list[Path]]:
    """Write tables and figures into `out`, and return both; nothing if no run compresses gradients.

    * `gradients.csv`, `gradients.md`: `gradient_table`, with the published numbers beside it;
    * `gradient_speedup`: where runs with `gradients=none` are there to compare with;
    * `gradient_time`: of runs with several evaluations;
    * `gradient_traffic`, `gradient_bits`: of 3LC's runs.
    """
    frame = gradient_frame(runs)
    if (frame["codec"] == REFERENCE).all():
        return [], []
    table = gradient_table(frame)
    tables = [out / "gradients.csv", out / "gradients.md"]
    table.to_csv(tables[0], index=False)
    tables[1].write_text(gradients_to_markdown(table))
    figures: list[Path] = []
    if (table["speedup"].notna() & (table["codec"] != REFERENCE)).any():
        figures += save_figure(draw_speedups(table), table, out, "gradient_speedup")
    curves = accuracy_curves(runs)
    if len(curves):
        figures += save_figure(draw_accuracy_against_time(curves), curves, out, "gradient_time")
    traffic = traffic_by_sparsity(table)
    if len(traffic):
        figures += save_figure(draw_traffic_by_sparsity(traffic), traffic, out, "gradient_traffic")
    bits = bits_curves(runs)
    if len(bits):
        figures += save_figure(draw_bits_over_training(bits), bits, out, "gradient_bits")
    return tables, figures
