"""Figures of single steps: the throttle against slow devices, 3LC's codec, encoding, and cached reads.

`experiments.redraw` draws each figure from the table of a committed measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.results.made_by import recorded_hardware
from pcr_exp.analysis.caption import Caption
from pcr_exp.analysis.figure import BELOW, footer, new_figure, note, panel_title, panels, save_figure
from pcr_exp.analysis.style import INK, MUTED, OTHER_STYLES, style
from pcr_exp.analysis.tables import span

THROTTLED = {
    "disk.csv": "a disk slowed by the kernel",
    "head_reads.csv": "reads from a simulated disk head",
    "head_epochs.csv": "epochs from a simulated disk head",
    "network.csv": "HTTP over a slowed link",
    "gradients.csv": "gradients over a slowed link",
}
"""Tables of results/throttle with the seconds of a device that is really slow and of the throttle."""

_CLOSE = 0.05

_ROW_IN, _AROUND_IN = 0.34, 1.5


def throttle_ratios(folder: Path) -> pd.DataFrame:
    """Return rows of `place`, `setting` and `ratio`: the throttle's seconds over those of the slow device.

    Args:
        folder: Folder with the tables THROTTLED.
    """
    parts = []
    for name, place in THROTTLED.items():
        rows = pd.read_csv(folder / name)
        settings = [
            ", ".join(_SETTINGS[str(key)].format(value) for key, value in row.items() if key in _SETTINGS)
            for row in rows.to_dict("records")
        ]
        parts.append(pd.DataFrame({"place": place, "setting": settings, "ratio": rows["ratio"]}))
    return pd.concat(parts, ignore_index=True)


_SETTINGS = {
    "bandwidth_mib_per_s": "{:g} MiB/s",
    "bandwidth_mbit_per_s": "{:g} Mbit/s",
    "seek_ms": "seek {:g} ms",
    "latency_ms": "{:g} ms",
    "read_kib": "reads of {:g} KiB",
    "num_readers": "{:g} at once",
    "group": "group {:g}",
    "gradients": "{}",
    "mode": "{}",
}
"""Formats of the columns that name a case; the others were measured."""


def draw_throttle(ratios: pd.DataFrame) -> Figure:
    """Draw a dot per repeat of `throttle_ratios`, a line per setting, places by colour; band: ± 5 %."""
    settings: list[tuple[Any, pd.DataFrame]] = list(ratios.groupby(["place", "setting"], sort=False))
    with style():
        figure = new_figure(8, _AROUND_IN + _ROW_IN * len(settings))
        ax = figure.subplots()
        ax.axvspan(1 - _CLOSE, 1 + _CLOSE, color=MUTED, alpha=0.15, linewidth=0)
        ax.axvline(1, color=MUTED, linewidth=1)
        places: dict[Any, tuple[str, str]] = dict(zip(THROTTLED.values(), OTHER_STYLES, strict=False))
        for row, ((place, _), found) in enumerate(settings):
            color, marker = places[place]
            first = place if place not in ax.get_legend_handles_labels()[1] else None
            ax.plot(found["ratio"], [row] * len(found), marker, color=color, alpha=0.8, label=first)
        ax.set_yticks(range(len(settings)), [setting for (_, setting), _ in settings], fontsize=8)
        ax.invert_yaxis()
        ax.set_xlabel("seconds under the throttle / seconds of the slow device")
        figure.legend(*ax.get_legend_handles_labels(), loc="outside right center", fontsize=8)
        footer(figure, f"each repeat a dot; band: {100 * _CLOSE:g} %")
    return figure


def draw_codec(rows: pd.DataFrame) -> Figure:
    """Draw MB/s of 3LC's encoding and decoding (columns of `threelc.codec_speed`), a bar per `tensors`."""
    words = {"encode_mb_per_s": "encoding, MB/s", "decode_mb_per_s": "decoding, MB/s"}
    return _bars(rows, "tensors", words)


def draw_encode(rows: pd.DataFrame) -> Figure:
    """Draw images/s of transcoding, and of encoding records on one and two cores (`speed.records`)."""
    words = {
        "jpegtran_images_per_s": "jpegtran, a process per image",
        "transcode_images_per_s": "transcoding alone, one core",
        "encode_images_per_s": "encoding records, one core",
        "two_cores_images_per_s": "encoding records, two cores",
    }
    found = rows[[*words]].rename(columns=words).melt(var_name="step", value_name="images_per_s")
    return _bars(found, "step", {"images_per_s": "images/s"})


def _bars(rows: pd.DataFrame, by: str, measures: Mapping[str, str]) -> Figure:
    """Draw a panel per measure, with a bar per value of `by`."""
    names = list(dict.fromkeys(rows[by]))
    with style():
        figure, axes = panels(len(measures))
        width, _ = figure.get_size_inches()
        figure.set_size_inches(width + 2.4, _AROUND_IN + _ROW_IN * len(names))
        for ax, (measure, words) in zip(axes, measures.items(), strict=True):
            for place, name in enumerate(names):
                found = rows.loc[rows[by] == name, measure]
                middle, most = found.median(), found.max()
                ax.barh(place, middle, height=0.62, color=OTHER_STYLES[0][0])
                ax.hlines(place, found.min(), most, color="black", linewidth=1)
                note(ax, f"{middle:,.0f}", (most, place), (4, 0), va="center", fontsize=8, color=MUTED)
            ax.margins(x=0.2)
            ax.grid(axis="y", visible=False)
            ax.set_xlabel(words)
            ax.set_yticks(range(len(names)), names if ax is axes[0] else [""] * len(names), fontsize=8.5)
            ax.invert_yaxis()
        footer(figure, "median, smallest to largest")
    return figure


def redraw_throttle(folder: Path, out: Path) -> list[Path]:
    """Draw the figure `throttle` from a folder of tables."""
    rows = throttle_ratios(folder)
    shows = "The throttle takes as long as devices that are really slow"
    of = "reads, epochs and gradients · no task · no model · no crops"
    caption = _caption(folder, shows, of, rows, ["place", "setting"], "storage: MiB/s as each line says")
    return save_figure(draw_throttle, rows, out, "throttle", caption)


def redraw_codec(folder: Path, out: Path) -> list[Path]:
    """Draw the figure `codec_speed` from codec.csv; its own CSV is a copy of that file."""
    rows = pd.read_csv(folder / "codec.csv")
    of, storage = "tensors of 32-bit floats · no task · no model", "no storage: tensors lie in memory"
    caption = _caption(folder, "How fast 3LC's codec works", of, rows, ["tensors"], storage)
    return save_figure(draw_codec, rows, out, "codec_speed", caption)


def redraw_encode(folder: Path, out: Path) -> list[Path]:
    """Draw the figure `encode_speed` from encode.csv; its own CSV is a copy of that file."""
    rows = pd.read_csv(folder / "encode.csv")
    of = f"{rows['images'].iloc[0]} native ImageNet files · whole images · no model"
    storage = "storage without a limit in MiB/s"
    caption = _caption(folder, "How fast images become records", of, rows, ["library"], storage)
    return save_figure(draw_encode, rows, out, "encode_speed", caption)


def _caption(folder: Path, shows: str, of: str, rows: pd.DataFrame, case: list[str], storage: str) -> Caption:
    n = f"n = {span(rows.groupby(case).size())} repeats"
    return Caption(shows=shows, of=(of,), n=n, hardware=recorded_hardware(folder), storage=storage)


NAME = "cached_reads"

_STYLE = dict(zip(("kept prefixes", "recent prefixes", "whole files"), OTHER_STYLES, strict=False))

_WORDS = {
    "static": "group 5 throughout",
    "rising": "groups 1, 2, 5, 10",
    "balanced": "groups 2, 5, 10 in turns",
}


def draw_cached_reads(rows: pd.DataFrame) -> Figure:
    """Draw bytes read from storage after the first epoch over those without a cache, a panel per reading."""
    alone = rows[rows["jobs"] == 1]
    names = list(dict.fromkeys(alone["reading"]))
    with style():
        figure, axes = panels(len(names))
        for ax, name in zip(axes, names, strict=True):
            _draw_panel(ax, alone[alone["reading"] == name])
            panel_title(ax, name, _WORDS[name])
        axes[0].set_ylabel("bytes read / without a cache")
        footer(figure, "9 epochs of 320 records in the loader's own order, 8 lanes")
    return figure


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    bound = rows[rows["cache"] == "kept prefixes"]
    least = 1 - bound["bound_share"]
    words = "each byte kept saves one an epoch"
    ax.plot(100 * bound["cache_share"], least, color=INK, linestyle=":", label=words)
    for cache, (color, marker) in _STYLE.items():
        line = rows[(rows["cache"] == cache) | (rows["cache_share"] == 0)]
        ax.plot(100 * line["cache_share"], line["read_share"], color=color, marker=marker, label=cache)
    ax.axhline(1, color=MUTED, linewidth=0.8)
    ax.set_xlabel("cache, % of the largest prefixes")
    ax.legend(**BELOW, ncols=2)


def redraw_cached_reads(folder: Path, out: Path) -> list[Path]:
    """Draw the figure of a folder's table; its own CSV is a copy of that file."""
    rows = pd.read_csv(folder / f"{NAME}.csv")
    caption = Caption(
        shows="Bytes that a cache leaves to be read after the first epoch",
        of=("records as the loader reads them · no task · no model · no crops",),
        n=f"n = {rows['repeat'].nunique()}, simulated",
        hardware="any hardware: bytes do not depend on it",
        storage="storage: bytes that are asked of it, whatever its MiB/s",
    )
    return save_figure(draw_cached_reads, rows, out, NAME, caption)
