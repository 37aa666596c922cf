"""What the papers measured with training runs: the pages that come behind those of every user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from experiments.combined.page import write_combined
from experiments.echoing.page import write_echo_report
from experiments.pcr.accuracy_vs_mssim import write_accuracy_vs_mssim
from experiments.pcr.learning import write_deployment, write_fair_baseline
from experiments.threelc.page import write_gradient_report
from pcr_exp.analysis.report import Page
from pcr_exp.analysis.runs import Run

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
