"""Figures: their panels, lines and files on disk."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from pcr_exp.analysis.core.cells import kilobytes
from pcr_exp.analysis.core.headline import as_written, guessed_of, headline_of
from pcr_exp.analysis.core.look import MUTED, style
from pcr_exp.training.task import TOP1

PANEL_WIDTH_IN = 4.6
PANEL_HEIGHT_IN = 3.5
_AROUND_AXES_IN, _LETTER_IN = 0.7, 0.066
"""Inches beside the axes of a panel, and of a letter of a subtitle."""
_FOOTER_LETTER_IN = 0.062
ASIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "borderaxespad": 6.5}
"""Where a legend hides no curve: right of the axes and of the words in their margin, in letters."""
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "fontsize": 8}
"""Where a legend of few columns hides no curve: under the axes and their label."""
_ON_BARS = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
"""Behind words that stand where bars are."""
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


def title_above(figure: Figure, words: str) -> None:
    """A title for all panels of a figure, at its upper left."""
    figure.suptitle(words, x=0.01, ha="left", fontsize=12, fontweight="bold")


def footer(figure: Figure, words: str) -> None:
    """Facts below all panels: n, hardware, storage. Lines wider than the figure are broken."""
    num_letters = max(40, int(figure.get_size_inches()[0] / _FOOTER_LETTER_IN))
    text = "\n".join(textwrap.fill(line, num_letters) for line in words.split("\n"))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=7.5, color=MUTED)


def guessing_lines(ax: Axes, rows: pd.DataFrame, *, upright: bool = False) -> None:
    """Draw the share of the most frequent class (dash-dotted), and chance, one in the classes (dotted).

    Of other headlines than top-1: what guessing reaches.

    They are named in the right margin, where no curve and no legend is. What is not known is not drawn.

    Args:
        ax: Of accuracies 0..1 on y, or on x if `upright`.
        rows: With `headline`, `majority_share` and `num_classes`, of one dataset and label.
        upright: Accuracies are on x.
    """
    if headline_of(rows) is not TOP1:
        for guess in sorted({guess for row in rows.to_dict("records") if (guess := guessed_of(row))}):
            _line(ax, guess, f"guessing\n{_short(guess)}", (0, (1, 2)), upright)
        return
    shares = sorted(set(rows["majority_share"].dropna()))
    chances = sorted({1 / classes for classes in rows["num_classes"].dropna() if classes})
    for share in shares:
        same = any(abs(share - chance) < 0.0005 for chance in chances)
        words = "majority\n= chance" if same else "majority"
        _line(ax, share, f"{words}\n{_short(share)}", "-.", upright)
    for chance in chances:
        if all(abs(share - chance) >= 0.0005 for share in shares):
            _line(ax, chance, f"chance\n{_short(chance)}", (0, (1, 2)), upright)


def _line(ax: Axes, at: float, words: str, dashes: object, upright: bool) -> None:
    draw = ax.axvline if upright else ax.axhline
    draw(at, color=MUTED, linewidth=0.9, linestyle=dashes, zorder=1)
    ax.annotate(
        words.replace("\n", " ") if upright else words,
        (at, 0) if upright else (1, at),
        xycoords=("data", "axes fraction") if upright else ("axes fraction", "data"),
        xytext=(2, 2) if upright else (3, 0),
        textcoords="offset points",
        rotation=90 if upright else 0,
        va="bottom" if upright else "center",
        color=MUTED,
        fontsize=7,
        zorder=5,
        bbox=_ON_BARS if upright else None,
    )


def _short(share: float) -> str:
    return f"{100 * share:.3g}%"


def save_figure(figure: Figure, data: pd.DataFrame, folder: str | Path, name: str) -> list[Path]:
    """Write `<name>.pdf`, `<name>.png` and `<name>.csv` (the rows it draws) into `folder`.

    The same figure gives the same bytes: no dates are written into the files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pdf, png, csv = (folder / f"{name}.{ending}" for ending in ("pdf", "png", "csv"))
    # Also legends that lie below a panel and are left out of the layout, so that they do not press on it.
    legends = [legend for ax in figure.axes if (legend := ax.get_legend()) is not None]
    whole: dict[str, Any] = {
        "bbox_inches": "tight",
        "bbox_extra_artists": [*figure.get_default_bbox_extra_artists(), *legends],
    }
    with style():
        figure.savefig(pdf, **whole, metadata={"CreationDate": None})
        figure.savefig(png, **whole, metadata={"Software": None})
    as_written(data).to_csv(csv, index=False)
    return [pdf, png, csv]


def panel_title(ax: Axes, title: str, subtitle: str = "", *, broken: bool = True) -> None:
    """A bold title with muted lines of facts (n, settings, units) under it.

    Lines that are wider than the panel are broken, unless `broken` is false: a layout takes their width
    from the panel.
    """
    if broken:
        grid, figure = ax.get_gridspec(), ax.get_figure(root=True)
        assert figure is not None
        width_in = figure.get_size_inches()[0] / (grid.ncols if grid is not None else 1)
        num_letters = max(20, int((width_in - _AROUND_AXES_IN) / _LETTER_IN))
        subtitle = "\n".join(textwrap.fill(line, num_letters) or line for line in subtitle.split("\n"))
    ax.set_title(title, pad=8 + (14 if subtitle else 0) + 12 * subtitle.count("\n"))
    if subtitle:
        ax.annotate(
            subtitle,
            (0, 1),
            xytext=(0, 7),
            xycoords="axes fraction",
            textcoords="offset points",
            color=MUTED,
            fontsize=8.5,
        )


def target_line(ax: Axes, target: float) -> None:
    """The accuracy that time is measured to, named in the right margin, where no curve runs."""
    named_line(ax, target, f"target\n{100 * target:g}%")


def named_line(ax: Axes, y: float, words: str, fontsize: float = 8) -> None:
    """A dotted line at `y`, named in the right margin."""
    ax.axhline(y, color=MUTED, linewidth=1, linestyle=":", zorder=1)
    ax.annotate(
        words,
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        color=MUTED,
        fontsize=fontsize,
    )


def accuracy_axis(ax: Axes, rows: pd.DataFrame) -> None:
    """Name the headline of `rows` on the y-axis, in per cent."""
    ax.set_ylabel(f"validation {headline_of(rows).words}")
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def ticks_in_bytes(axis: Axis, low: float, high: float) -> None:
    """Ticks at 1, 2, 5 x 10^k between `low` and `high` bytes, in kB and MB, for a logarithmic axis."""
    ticks = [m * 10.0**k for k in range(10) for m in (1, 2, 5)]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: kilobytes(value)))


def alone_mark(n: int, most: int) -> str:
    """` (n = 1)` for one run alone where others are means of more; else nothing."""
    return " (n = 1)" if n == 1 < most else ""
