"""Legends of scan groups that are drawn as points."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pcr_exp.analysis.core.figure import BELOW
from pcr_exp.analysis.core.look import scan_words
from pcr_exp.analysis.core.scan_colors import color_in_script, group_marker
from pcr_exp.config.labels import in_script


def group_handles(groups: Sequence[int], script: str) -> list[Line2D]:
    """What a legend says of the scan groups of a script, which are drawn as points."""
    return [
        Line2D(
            [], [], linestyle="none", marker=group_marker(g), color=color_in_script(g, script), label=words
        )
        for g in groups
        for words in [scan_words(in_script(f"group_{g}", script))]
    ]


def group_legend(ax: Axes, groups: Sequence[int], script: str) -> None:
    """Name scan groups below the axes, in one row, without their script: it is the same of all."""
    handles = group_handles(groups, script)
    for group, handle in zip(groups, handles, strict=True):
        handle.set_label(scan_words(f"group_{group}"))
    ax.legend(handles=handles, ncols=len(groups), handletextpad=0.1, **BELOW)
