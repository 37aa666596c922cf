"""Report pages for the papers' training runs, which follow the library's own pages."""

from __future__ import annotations

from experiments.combined.page import write_combined
from experiments.echoing.page import write_echo_report
from experiments.pcr.accuracy_vs_mssim import write_accuracy_vs_mssim
from experiments.pcr.equal_bytes import write_equal_bytes
from experiments.pcr.learning import write_deployment, write_fair_baseline
from experiments.threelc.page import write_gradient_report
from pcr_exp.analysis.report import Page

PAGES: tuple[Page, ...] = (
    write_accuracy_vs_mssim,
    write_fair_baseline,
    write_deployment,
    write_equal_bytes,
    write_echo_report,
    write_gradient_report,
    write_combined,
)
