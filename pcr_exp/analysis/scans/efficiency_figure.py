"""Accuracy against time beside accuracy against epochs: what speed gains, and what learning loses."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pcr_exp.analysis.core.panels import panels, per_panel
from pcr_exp.analysis.core.style import panel_title, style
from pcr_exp.analysis.scans.time_to_accuracy_figure import SECONDS_LABEL, draw_accuracy_panel


def draw_efficiency(curves: pd.DataFrame) -> Figure:
    """Two panels per dataset, label and model of `with_seconds`: top-1 against seconds and against epochs."""
    with style():
        facts = list(per_panel(curves))
        figure, axes = panels(2 * len(facts), max_columns=2)
        for i, (title, subtitle, rows) in enumerate(facts):
            against_time, against_epochs = axes[2 * i], axes[2 * i + 1]
            draw_accuracy_panel(against_time, rows, "seconds", SECONDS_LABEL)
            draw_accuracy_panel(against_epochs, rows, "epoch", "epochs completed")
            against_epochs.xaxis.set_major_locator(MaxNLocator(integer=True))
            against_epochs.sharey(against_time)
            legend = against_epochs.get_legend()
            assert legend is not None
            legend.remove()  # that of the panel beside it
            panel_title(against_time, title, subtitle)
            panel_title(against_epochs, "the same, per epoch", "statistical efficiency")
    return figure
