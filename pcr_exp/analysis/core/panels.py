"""One panel per dataset, label and model, on one row, with one legend."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.style import PANEL_HEIGHT_IN, PANEL_WIDTH_IN
from pcr_exp.analysis.core.summary import GROUP_KEYS

MAX_COLUMNS = 3


def panels(num_panels: int, max_columns: int = MAX_COLUMNS) -> tuple[Figure, list[Axes]]:
    """A figure with `num_panels` axes, at most `max_columns` in a row; surplus places are left empty."""
    num_columns = min(num_panels, max_columns)
    num_rows = -(-num_panels // num_columns)
    figure = new_figure(PANEL_WIDTH_IN * num_columns, PANEL_HEIGHT_IN * num_rows)
    axes = figure.subplots(num_rows, num_columns, squeeze=False)
    for ax in axes.flat[num_panels:]:
        ax.remove()
    return figure, list(axes.flat[:num_panels])


def wide_panels(num_panels: int) -> tuple[Figure, list[Axes]]:
    """A figure with `num_panels` axes below each other, for many bars or a legend at their side."""
    figure = new_figure(1.6 * PANEL_WIDTH_IN, PANEL_HEIGHT_IN * num_panels)
    return figure, list(figure.subplots(num_panels, squeeze=False).flat)


def new_figure(width_in: float, height_in: float) -> Figure:
    """A figure that pyplot does not know of: nothing to close, and no window system is asked for."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def per_panel(curves: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(title, subtitle, rows) of every group of comparable runs, in the order of GROUP_KEYS.

    Runs of unlike `timing`, if the rows have it, are panels of their own. The setting and the hardware are
    named where two panels differ in nothing else.
    """
    *named, _ = GROUP_KEYS
    timed = curves if "timing" in curves else curves.assign(timing="")
    for (dataset, label, model, storage, setting, timing), rows in timed.groupby(
        [*GROUP_KEYS, "timing"], sort=True
    ):
        num_seeds = rows.groupby("scan")["seed"].nunique()
        low, high = num_seeds.min(), num_seeds.max()
        seeds = f"n = {low} seed{'s' if low != 1 else ''}" if low == high else f"n = {low} to {high} seeds"
        facts = [f"storage {storage}", f"{seeds} per scan level"]
        alike = (curves[named] == [dataset, label, model, storage]).all(axis=1)
        if curves.loc[alike, "setting"].nunique() > 1:
            facts.append(f"setting {setting}")
        if timed.loc[timed["setting"] == setting, "timing"].nunique() > 1:
            facts.append(f"{' / '.join(sorted(set(rows['hardware'])))}, timing {timing}")
        yield f"{dataset} · {label} · {model}", ", ".join(facts), rows
