"""Find unreadable parts of a drawn figure: overlapping tick labels and clipped markers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def _drawn(ax: Axes) -> FigureCanvasAgg:
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


def overlapping_ticks(ax: Axes) -> list[tuple[str, str]]:
    """Return pairs of tick labels of one axis that overlap."""
    renderer = _drawn(ax).get_renderer()
    found = []
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [(tick.label1.get_text(), tick.label1.get_window_extent(renderer)) for tick in ticks]
        found += [(one, other) for (one, a), (other, b) in combinations(boxes, 2) if one and a.overlaps(b)]
    return found


def cut_markers(ax: Axes) -> list[str]:
    """Return the labels of lines with a marker that an edge of the axes clips."""
    canvas, found = _drawn(ax), []
    box = ax.get_window_extent()
    for line in ax.lines:
        if line.get_marker() in ("None", "") or not line.get_clip_on():
            continue
        radius = 0.5 * line.get_markersize() * canvas.figure.dpi / 72
        points = ax.transData.transform(np.asarray(line.get_xydata(), dtype=float))
        if (points < [box.x0 + radius, box.y0 + radius]).any() or (
            points > [box.x1 - radius, box.y1 - radius]
        ).any():
            found.append(str(line.get_label()))
    return found
