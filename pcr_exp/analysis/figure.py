"""Figures: their panels, lines and files on disk."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
    StrMethodFormatter,
)
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from pcr_exp.analysis.caption import Caption
from pcr_exp.analysis.primary_metric import as_written, metric_of
from pcr_exp.analysis.style import INK, MUTED, style
from pcr_exp.analysis.tables import kilobytes

PANEL_WIDTH_IN = 4.6
PANEL_HEIGHT_IN = 3.5
_AROUND_AXES_IN, _LETTER_IN = 0.7, 0.066
"""Inches beside the axes of a panel, and per letter of a subtitle."""
_TITLE_LETTER_IN, _TITLE_LINE_IN = 0.096, 0.2
_FOOTER_LETTER_IN, _FOOTER_LINE_IN = 0.062, 0.14
BELOW: dict[str, Any] = {
    "loc": "upper center",
    "bbox_to_anchor": (0.5, 0),
    "fontsize": 8,
    "title_fontsize": 8.5,
    "borderaxespad": 4.6,
    "columnspacing": 1.2,
}
"""Placement of a legend of few columns: below the axes and their label at any height, hiding no curve."""
MAX_COLUMNS = 3
MAX_CURVES = 6
"""Most curves in a panel; more are drawn in several panels."""
LEGEND_LINE_IN = 0.19
LINEAR_POINTS = 3
"""Points at which an axis of differences turns from linear to logarithmic."""
HIGHEST_SHARE = 1.02
"""Upper limit of an axis of shares: intervals of two seeds may go beyond it, shares cannot."""
_FEW_TICKS, _MOST_TICKS = 3, 6
"""Most ticks on an axis of bytes: at the finest steps, and at coarser ones."""
_MARKER_MARGIN = 0.04
"""Margin at both ends of an axis of points, so that no marker is cut."""
MARGIN = ("axes fraction", "data")
"""Coordinates of text in a side margin, at a value of y."""
MAX_PNG_BYTES = 150_000
_LINES = [(256, 1.0), (256, 0.9), (256, 0.8), (256, 0.65)]
_PHOTOGRAPHS = [(256, 1.0), (256, 0.7), (256, 0.5), (128, 0.5), (64, 0.5)]
"""Numbers of colours and scales, tried in order until a PNG has at most MAX_PNG_BYTES."""
PICTURES = ("pdf", "png")
"""File endings of a figure's pictures."""
_only: ContextVar[frozenset[str] | None] = ContextVar("only", default=None)
_pictures: ContextVar[tuple[str, ...]] = ContextVar("pictures", default=PICTURES)


def panels(num_panels: int, max_columns: int = MAX_COLUMNS) -> tuple[Figure, list[Axes]]:
    """Return a figure with `num_panels` axes, at most `max_columns` in a row; surplus cells stay empty."""
    num_columns = min(num_panels, max_columns)
    num_rows = -(-num_panels // num_columns)
    figure = new_figure(PANEL_WIDTH_IN * num_columns, PANEL_HEIGHT_IN * num_rows)
    axes = figure.subplots(num_rows, num_columns, squeeze=False)
    for ax in axes.flat[num_panels:]:
        ax.remove()
    return figure, list(axes.flat[:num_panels])


def wide_panels(num_panels: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with `num_panels` axes below each other, for many bars or a legend at the side."""
    figure = new_figure(1.6 * PANEL_WIDTH_IN, PANEL_HEIGHT_IN * num_panels)
    return figure, list(figure.subplots(num_panels, squeeze=False).flat)


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return a figure that pyplot does not manage: it need not be closed, and needs no window system."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def enlarge(figure: Figure, width_in: float = 0, height_in: float = 0) -> None:
    """Add inches to a figure, such as for a legend beside or below its panels."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + width_in, height + height_in)


def footer(figure: Figure, words: str) -> None:
    """Explain the drawing below all panels; `save_figure` adds n, hardware and storage."""
    figure.supxlabel(words, x=0.01, ha="left", fontsize=7.5, color=MUTED)


def put_caption(figure: Figure, caption: Caption) -> Figure:
    """Add the title above all panels, and the facts below them, before the text of `footer`.

    The figure grows, so that panels keep their size. Panel titles lose what the caption already states; with
    several tasks, each keeps its own task. Returns the figure; call it only once.
    """
    width_in, height_in = figure.get_size_inches()
    title = _wrapped(caption.title, width_in / _TITLE_LETTER_IN)
    words = _wrapped(_joined(caption.facts, figure.get_supxlabel()), width_in / _FOOTER_LETTER_IN)
    lines_in = _TITLE_LINE_IN * (title.count("\n") + 1) + _FOOTER_LINE_IN * (words.count("\n") + 1)
    figure.set_size_inches(width_in, height_in + lines_in)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold", color=INK)
    footer(figure, words)
    for ax in figure.axes:
        text = _title_of(ax)
        if text is not None:
            # Blank titles only reserve the height of a title beside them, so strip them as well.
            own = _own_title(text.get_text(), caption.of).strip()
            text.set_text(_wrapped(own, _panel_width_in(ax) / _TITLE_LETTER_IN))
    return figure


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _wrapped(words: str, num_letters: float) -> str:
    """Wrap each line at `num_letters`, or at 30 letters if that is more."""
    widest = max(30, int(num_letters))
    return "\n".join(textwrap.fill(line, widest) for line in words.split("\n"))


def _title_of(ax: Axes) -> Text | None:
    title = ax.get_title(loc="left")
    texts = (child for child in ax.get_children() if isinstance(child, Text))
    return next((text for text in texts if title and text.get_text() == title), None)


def _own_title(title: str, tasks: Sequence[str]) -> str:
    """Return a panel's title without the task that the caption names; with several tasks it keeps its own."""
    for task in tasks:
        bare, _, size = task.rpartition(" · ")
        if title.startswith(bare):
            rest = title.removeprefix(bare).removeprefix(f" · {size}").removeprefix(", ")
            return rest if len(tasks) == 1 else _joined(task, rest)
    return title


@contextmanager
def only_figures(names: Collection[str], *, pictures: Sequence[str] = PICTURES) -> Iterator[None]:
    """Restrict `save_figure` to the figures with these names: their rows, and these of PICTURES.

    Drawing a picture takes seconds.
    """
    before, with_pictures = _only.set(frozenset(names)), _pictures.set(tuple(pictures))
    try:
        yield
    finally:
        _only.reset(before)
        _pictures.reset(with_pictures)


def draw_panels(
    found: Sequence[tuple[str, str, pd.DataFrame]],
    draw: Callable[[Axes, pd.DataFrame], None],
    *,
    max_columns: int = MAX_COLUMNS,
    wide: bool = False,
    words: str = "",
) -> Figure:
    """Return a figure with a panel for each (title, subtitle, rows).

    Args:
        found: The panels, in their order.
        draw: Draws the rows of one panel on its axes.
        max_columns: As in `panels`.
        wide: Draw the panels below each other (`wide_panels`).
        words: The footer, which explains the drawing.
    """
    with style():
        figure, axes = wide_panels(len(found)) if wide else panels(len(found), max_columns)
        for ax, (title, subtitle, rows) in zip(axes, found, strict=True):
            draw(ax, rows)
            panel_title(ax, title, subtitle)
        if words:
            footer(figure, words)
    return figure


def save_figure(
    draw: Callable[[pd.DataFrame], Figure],
    data: pd.DataFrame,
    folder: str | Path,
    name: str,
    caption: Caption,
) -> list[Path]:
    """Write `<name>.pdf`, `<name>.png` and `<name>.csv` (the rows that `draw` draws) into `folder`.

    The caption is drawn on the figure (`put_caption`) and stored in the files, for readers who cannot see it.
    Equal figures give identical bytes, because no dates are written. Figures that `only_figures` excludes are
    not written, and no path is returned. If it selects no pictures, only the rows are written.
    """
    only = _only.get()
    if only is not None and name not in only:
        return []
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    csv = folder / f"{name}.csv"
    as_written(data).to_csv(csv, index=False)
    pictures = [folder / f"{name}.{ending}" for ending in _pictures.get()]
    if not pictures:
        return [csv]
    figure = put_caption(draw(data), caption)
    # Include legends below panels, even those kept out of the layout so that panels do not shrink.
    legends = [legend for ax in figure.axes if (legend := ax.get_legend()) is not None]
    whole: dict[str, Any] = {
        "bbox_inches": "tight",
        "bbox_extra_artists": [*figure.get_default_bbox_extra_artists(), *legends],
    }
    with style():
        for path in pictures:
            if path.suffix == ".png":
                path.write_bytes(_palette_png(figure, caption, whole))
            else:
                said = {"Title": caption.title, "Subject": caption.facts, "CreationDate": None}
                figure.savefig(path, **whole, metadata=said)
    return [*pictures, csv]


def _palette_png(figure: Figure, caption: Caption, whole: dict[str, Any]) -> bytes:
    """Return a PNG of at most 256 colours, a third of the bytes of all colours; scaled down as in `_LINES`.

    For lines, the palette covers the range of colours, which keeps the colour of thin ones. For photographs,
    it depends on the area of each colour; white and the colours of lines are added.
    """
    drawn = BytesIO()
    figure.savefig(drawn, format="png", **whole)
    said = PngInfo()
    for key, words in (("Title", caption.title), ("Description", caption.facts)):
        said.add_itxt(key, words)
    with Image.open(drawn) as image:
        image.load()
        dpi, colors = image.info["dpi"], image.convert("RGB")
    photographs = any(ax.images for ax in figure.axes)
    exact = {"white", *(to_hex(line.get_color()) for line in figure.findobj(Line2D))}
    for num_colors, scale in _PHOTOGRAPHS if photographs else _LINES:
        packed = BytesIO()
        size_px = (round(scale * colors.width), round(scale * colors.height))
        scaled = colors.resize(size_px, Image.Resampling.LANCZOS)
        if photographs:
            palette = _with_exact(scaled, num_colors, exact)
        else:
            palette = scaled.quantize(num_colors, Image.Quantize.MAXCOVERAGE)
        palette.save(packed, "PNG", optimize=True, pnginfo=said, dpi=(scale * dpi[0], scale * dpi[1]))
        if packed.tell() <= MAX_PNG_BYTES:
            break
    return packed.getvalue()


def _with_exact(image: Image.Image, num_colors: int, exact: Collection[str]) -> Image.Image:
    """Reduce an RGB image to `num_colors`: the colours in `exact`, and others by their area."""
    reserved = [[round(255 * part) for part in to_rgb(color)] for color in sorted(exact)]
    by_area = image.quantize(num_colors - len(reserved), Image.Quantize.MEDIANCUT).getpalette() or []
    table = Image.new("P", (1, 1))
    table.putpalette([*by_area, *chain(*reserved)])
    # Pillow searches the palette roughly, so exact colours are put in afterwards.
    indexes = np.array(image.quantize(palette=table, dither=Image.Dither.NONE))
    for index, color in enumerate(reserved, len(by_area) // 3):
        indexes[(np.asarray(image) == color).all(-1)] = index
    reduced = Image.fromarray(indexes)
    reduced.putpalette(table.getpalette() or [])
    return reduced


def panel_title(ax: Axes, title: str, subtitle: str = "", *, across: int = 1) -> None:
    """Set a bold title with muted lines of facts (n, settings, units) under it.

    Lines wider than the panel, or than `across` panels side by side, are wrapped; otherwise the layout would
    narrow the panel.
    """
    num_letters = max(20, int((across * _panel_width_in(ax) - _AROUND_AXES_IN) / _LETTER_IN))
    subtitle = "\n".join(textwrap.fill(line, num_letters) or line for line in subtitle.split("\n"))
    ax.set_title(title, pad=8 + (14 if subtitle else 0) + 12 * subtitle.count("\n"))
    if subtitle:
        note(ax, subtitle, (0, 1), (0, 7), "axes fraction", color=MUTED, fontsize=8.5)


def _panel_width_in(ax: Axes) -> float:
    """Return a panel's share of the figure's width in inches, including the space around its axes."""
    grid, figure = ax.get_gridspec(), ax.get_figure(root=True)
    assert figure is not None
    return float(figure.get_size_inches()[0]) / (grid.ncols if grid is not None else 1)


def note(ax: Axes, words: str, at: Any, offset_pt: Any, coords: Any = "data", **look: Any) -> None:
    """Write text near a point of the axes, `offset_pt` typographic points to the right of it and above it."""
    ax.annotate(words, at, offset_pt, coords, "offset points", **look)


def target_line(ax: Axes, target: float) -> None:
    """Draw the target accuracy as a line, named in the right margin, where no curve runs."""
    named_line(ax, target, f"target\n{100 * target:g}%")


def named_line(ax: Axes, y: float, words: str, *, fontsize: float = 8, dashes: str = ":") -> None:
    """Draw a line at `y`, named in the right margin."""
    ax.axhline(y, color=MUTED, linewidth=1, linestyle=dashes, zorder=1)
    note(ax, words, (1, y), (3, 0), MARGIN, va="center", color=MUTED, fontsize=fontsize)


def accuracy_axis(ax: Axes, rows: pd.DataFrame) -> None:
    """Label the y-axis with the primary metric of `rows`, in per cent."""
    ax.set_ylabel(f"validation {metric_of(rows).words}")
    percent_axis(ax.yaxis)


def percent_axis(axis: Axis) -> None:
    """Format shares as per cent, with as many digits as each tick needs: 50%, 52.5%."""
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g}%"))


def points_axis(ax: Axes, name: Literal["x", "y"]) -> None:
    """Scale an axis of differences so that one point near 0 is equally wide whatever else is drawn.

    It is linear within ±LINEAR_POINTS and logarithmic beyond, and always shows the first point on both sides.
    """
    axis, limits = (ax.xaxis, ax.get_xlim()) if name == "x" else (ax.yaxis, ax.get_ylim())
    low, high = min(-1.3, *limits), max(1.3, *limits)
    scale, limit = (ax.set_xscale, ax.set_xlim) if name == "x" else (ax.set_yscale, ax.set_ylim)
    scale("symlog", linthresh=LINEAR_POINTS, linscale=1)
    places = axis.get_transform()
    ends = places.transform(np.array([low, high]))
    room = _MARKER_MARGIN * (ends[1] - ends[0])
    low, high = places.inverted().transform([ends[0] - room, ends[1] + room])
    limit(low, high)
    beyond = (5,) if max(-low, high) < 10 else (10, 30, 100)
    ticks = [sign * points for points in (1, LINEAR_POINTS, *beyond) for sign in (-1, 1)]
    axis.set_major_locator(FixedLocator(sorted(tick for tick in (*ticks, 0) if low <= tick <= high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))


def marks_without_bars(ax: Axes) -> tuple[list[Artist], list[str]]:
    """Return marks and labels of `ax.errorbar` for a legend, without the stubs of bars."""
    drawn = [bars for bars in ax.containers if isinstance(bars, ErrorbarContainer)]
    return [bars.lines[0] for bars in drawn], [str(bars.get_label()) for bars in drawn]


def ticks_in_bytes(axis: Axis, low: float, high: float) -> None:
    """Set ticks between `low` and `high` bytes, in kB and MB, on a logarithmic axis.

    They are at 1, 2, 5 x 10^k, or at finer or coarser steps, few enough to stand beside each other.
    """
    for digits in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**k for k in range(13) for m in digits if low <= m * 10.0**k <= high]
        if len(ticks) <= (_FEW_TICKS if len(digits) > 3 else _MOST_TICKS):
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: kilobytes(value)))


def same_limits(axes: Sequence[Axes], keys: Sequence[object]) -> None:
    """Give panels of equal key the same limits of x and of y."""
    for key in dict.fromkeys(keys):
        same = [ax for ax, other in zip(axes, keys, strict=True) if other == key]
        x, y = ([ax.get_xlim() for ax in same], [ax.get_ylim() for ax in same])
        for ax in same:
            ax.set_xlim(min(low for low, _ in x), max(high for _, high in x))
            ax.set_ylim(min(low for low, _ in y), max(high for _, high in y))


def rate_axis(axis: Axis) -> None:
    """Format a logarithmic axis of images/s: labels at 1, 2 and 5 times powers of ten do not overlap."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


def single_run_mark(n: int, most: int) -> str:
    """Return ` (n = 1)` for a single run if others are means of more; else nothing."""
    return " (n = 1)" if n == 1 < most else ""
