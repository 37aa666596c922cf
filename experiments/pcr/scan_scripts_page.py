"""What `experiments.pcr.scan_scripts` measured, as a figure and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.loaders.speed.study import TABLES_FILE, to_markdown
from experiments.pcr.scan_scripts import MIDDLE_GROUP, SLACK, named_scripts
from pcr_exp.analysis.caption import Caption, hardware_words
from pcr_exp.analysis.figure import footer, panel_title, panels, save_figure
from pcr_exp.analysis.frame import WHOLE, ms_ssim_words
from pcr_exp.analysis.style import INK, MUTED, OTHER_LOOKS, share_color, style
from pcr_exp.analysis.tables import Cell, markdown_table

NAME = "front"
SEARCH_FILE = "search.csv"
_OF_BASELINE = "full decode / baseline's"
_DEFAULT = "default"
_TABLES = (
    "The front",
    "Every group of the named scripts",
    "The same work as Pillow",
    "Ways to write a script",
)


def draw_front(
    search: pd.DataFrame, groups: pd.DataFrame, facts: Mapping[str, Any], of_groups: Mapping[str, Any]
) -> Figure:
    """Full decode against bytes, full decode against a middle prefix's bytes, and quality against bytes.

    One marker per script; those that no other beats in all three costs are filled. Colours in the third panel
    go by the share of bytes, as in every figure. `facts` and `of_groups` are those of the two tables.
    """
    looks = dict(zip([_DEFAULT, *_others(search)], [(INK, "s"), *OTHER_LOOKS], strict=False))
    with style():
        figure, (whole, middle, quality) = panels(3)
        for ax, column in ((whole, "bytes_share"), (middle, "middle_bytes_share")):
            _draw_scripts(ax, search, column, looks)
            ax.set_ylabel(_OF_BASELINE)
        whole.set_xlabel("bytes of all scans / optimised baseline")
        middle.set_xlabel("bytes of the middle prefix / optimised baseline")
        spread = f"median of {facts['repeats']} turns, bars: range"
        panel_title(whole, "All scans", f"{spread}; n = {facts['num_searched']} images")
        told = f"as good as group {MIDDLE_GROUP} of default, to {SLACK} of MS-SSIM"
        panel_title(middle, "A middle prefix", f"{told}; n = {facts['num_compared']} images")
        for name, rows in groups.groupby("script", sort=False):
            _draw_quality(quality, rows.groupby("group").first(), looks[str(name)])
        quality.set_xlabel("bytes / optimised baseline")
        quality.set_ylabel(f"1 - {ms_ssim_words([WHOLE])}")
        quality.set_yscale("log")
        panel_title(quality, "Every prefix", f"decode=scaled; n = {of_groups['num_compared']} images")
        whole.legend(loc="upper right")
        footer(figure, f"CPU time of one thread, scripts by turns; commit {str(facts['git_sha'])[:7]}")
    return figure


def _others(search: pd.DataFrame) -> list[str]:
    named = search[search["is_option"]]["script"]
    return [str(name) for name in named if name != _DEFAULT]


def _draw_scripts(ax: Axes, search: pd.DataFrame, column: str, looks: Mapping[str, tuple[str, str]]) -> None:
    for row in search.to_dict("records"):
        name, at, cost = str(row["script"]), row[column], row["full_decode"]
        color, marker = looks.get(name, (MUTED, "o"))
        reach = [[cost - row["full_decode_low"]], [row["full_decode_high"] - cost]]
        filled = color if row["on_front"] else "none"
        ax.errorbar(
            at,
            cost,
            yerr=reach,
            color=color,
            marker=marker,
            markerfacecolor=filled,
            markersize=7 if name in looks else 4.5,
            elinewidth=0.8,
            linestyle="none",
            label=name if name in looks else None,
            zorder=3 if name in looks else 2,
        )


def _draw_quality(ax: Axes, rows: pd.DataFrame, look: tuple[str, str]) -> None:
    """A line per script, through markers whose colour is that of their share of its bytes."""
    below = rows[rows["ms_ssim"] < 1]
    color, marker = look
    ax.plot(below["bytes_share"], 1 - below["ms_ssim"], color=color, linewidth=1.1, zorder=1)
    for share, similarity in zip(below["bytes_share"], below["ms_ssim"], strict=True):
        filled = share_color(share / rows["bytes_share"].max())
        ax.plot(share, 1 - similarity, marker=marker, color=filled, markeredgecolor=color, markersize=6)


def read_search(folder: Path) -> pd.DataFrame:
    """The rows of a search; scripts that are options of `records.scans` by now have their names."""
    search = pd.read_csv(folder / SEARCH_FILE)
    names = {script.id: name for name, script in named_scripts().items()}
    known = search["scans"].map(names)
    return search.assign(script=known.fillna(search["script"]), is_option=known.notna())


def draw_folder(folder: Path, out: Path) -> list[Path]:
    """`front` of the measurements in a folder."""
    search, groups = read_search(folder), pd.read_csv(folder / "groups.csv")
    facts, of_groups = (json.loads((folder / f"{name}.json").read_text()) for name in ("search", "groups"))
    caption = Caption(
        shows=f"What {len(search)} scan scripts cost and keep",
        of=("native ImageNet images · whole images · no model",),
        n=f"n = {facts['num_searched']} images, of which {facts['num_compared']} were compared; of the last "
        f"panel {of_groups['num_images']} and {of_groups['num_compared']}",
        hardware=hardware_words(facts),
        storage="no storage: images lie in memory",
    )
    draw = partial(draw_front, groups=groups, facts=facts, of_groups=of_groups)
    return save_figure(draw, search, out, NAME, caption)


def tables(folder: Path) -> str:
    """The content of TABLES_FILE: _TABLES, of scripts on the front and of those with a name."""
    search = read_search(folder).sort_values("full_decode")
    shown = search[search["on_front"] | search["is_option"]]
    columns: dict[str, Cell] = {
        "script": lambda row: str(row["script"]),
        "scans": lambda row: str(row["num_scans"]),
        "bytes": lambda row: f"{row['bytes_share']:.3f}",
        f"middle: group, bytes, {ms_ssim_words([WHOLE])}": lambda row: (
            f"{row['middle_group']}, {row['middle_bytes_share']:.3f}, {row['middle_ms_ssim']:.3f}"
        ),
        "full decode": lambda row: (
            f"{row['full_decode']:.2f} ({row['full_decode_low']:.2f} to {row['full_decode_high']:.2f})"
        ),
        "on the front": lambda row: "yes" if row["on_front"] else "no",
    }
    measured = [to_markdown(pd.read_csv(folder / f"{name}.csv")) for name in ("groups", "crops", "writers")]
    parts = ["# Every scan script of results/scan_scripts"]
    for title, table in zip(_TABLES, [markdown_table(shown, columns), *measured], strict=True):
        parts += [f"## {title}", table]
    return "\n\n".join(parts) + "\n"


def write_page(folder: Path, out: Path) -> list[Path]:
    """`front`, and TABLES_FILE."""
    (out / TABLES_FILE).write_text(tables(folder))
    return [out / TABLES_FILE, *draw_folder(folder, out)]
