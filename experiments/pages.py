"""What the papers measured with training runs: the pages that come behind those of every user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from pcr_exp.analysis.combined.page import write_combined
from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.echo.page import write_echo_report
from pcr_exp.analysis.gradients.page import write_gradient_report
from pcr_exp.analysis.report import Page
from pcr_exp.analysis.scans.accuracy_vs_mssim import write_accuracy_vs_mssim
from pcr_exp.analysis.scans.deployment import write_deployment
from pcr_exp.analysis.scans.fair_baseline import write_fair_baseline

Written = tuple[list[Path], list[Path]]
"""Tables and figures."""


def of_runs(write: Callable[[list[Run], Path], Written]) -> Page:
    """A page that is made of runs alone."""

    def page(runs: list[Run], _: pd.DataFrame, out: Path) -> Written:
        return write(runs, out)

    return page


PAGES: tuple[Page, ...] = (
    write_accuracy_vs_mssim,
    of_runs(write_fair_baseline),
    of_runs(write_deployment),
    of_runs(write_echo_report),
    of_runs(write_gradient_report),
    of_runs(write_combined),
)
