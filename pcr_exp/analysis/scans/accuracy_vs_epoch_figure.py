"""Statistical efficiency: what one epoch teaches at each scan level, whatever it cost in time."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pcr_exp.analysis.core.summary import one_run_per_seed
from pcr_exp.analysis.scans.time_to_accuracy_figure import draw_accuracy


def draw_accuracy_vs_epoch(curves: pd.DataFrame) -> Figure:
    """Validation top-1 against completed epochs (`curves.eval_curves`), same panels as time to accuracy."""
    figure = draw_accuracy(one_run_per_seed(curves), "epoch", "epochs completed")
    for ax in figure.axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
