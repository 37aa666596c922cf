"""One style for all figures: readable in a README, on paper without colour, and with colour blindness."""

from __future__ import annotations

import colorsys
import math
import re
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from pcr_exp.analysis.frame import SHARE
from pcr_exp.config.describe import DEFAULT_NAME, script_in
from pcr_exp.config.scan import is_level, scan_of
from pcr_exp.config.scan_scripts import NUM_GROUPS

_MARKERS = {1: "o", 2: "^", 3: "<", 4: ">", 5: "D", 6: "p", 7: "h", 8: "X", 9: "P", 10: "v"}

_SHARES = {1: 0.061, 2: 0.138, 5: 0.466, 10: 1.0}
"""Share of bytes up to each scan group of libjpeg's script, over 1,000 native ImageNet images."""

SHARES_OF_SCRIPTS = {
    "refined_luma": (0.070, 0.151, 0.291, 0.443, 0.644, 0.794, 1.0),
    "spectral": (0.069, 0.123, 0.271, 0.423, 0.559, 1.0),
    "three_bands": (0.070, 0.192, 0.331, 0.483, 0.733, 1.0),
    "two_step": (0.070, 0.275, 0.428, 0.566, 0.831, 1.0),
}
"""Shares of bytes up to every group of the other named scripts, on native ImageNet (results/scan_scripts)."""


def group_color(group: float) -> str:
    """Return the colour of a group of libjpeg's script, from light (few bytes) to dark (all).

    Steps are even in the logarithm of the group, so that the paper's 1, 2, 5, 10 are about equally far apart.
    Perceived lightness changes evenly, so the order survives a black-and-white printer and colour blindness.
    """
    share = math.log(min(group, NUM_GROUPS)) / math.log(NUM_GROUPS)
    return to_hex(mpl.colormaps["plasma"](0.80 - 0.70 * share))


def share_color(share: float) -> str:
    """Return the colour of a group of another script, by its share of all bytes.

    It is the colour of the group of libjpeg's script with this share, on the ramp of `group_color`.
    """
    logarithms = [math.log(group) for group in _SHARES]
    return group_color(math.exp(np.interp(share, [*_SHARES.values()], logarithms)))


def color_in_script(group: float, script: str = "default", share: float = math.nan) -> str:
    """Return the colour of a group of any script.

    Args:
        group: Scan group, from 1.
        script: Name of the script; `default` is libjpeg's.
        share: Share of all bytes, for a group of the user's own script. If it is NaN, the number decides.
    """
    if script in SHARES_OF_SCRIPTS:
        return share_color(SHARES_OF_SCRIPTS[script][int(group) - 1])
    return group_color(group) if math.isnan(share) else share_color(share)


def group_marker(group: float) -> str:
    """Return the marker of a scan group, for readers without colour."""
    return _MARKERS[int(min(group, NUM_GROUPS))]


INK = "#1a1a1a"

MUTED = "#6b6b6b"

GRID = "#e4e4e4"

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.5,
    "figure.facecolor": "white",
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "pdf.fonttype": 42,
}

DEFAULTS = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")}

OTHER_STYLES = [
    *(("#0072b2", "o"), ("#009e73", "D"), ("#56b4e9", "^"), ("#8c6d31", "P")),
    *(("#005f3c", "v"), ("#a0a000", ">"), ("#8a8a8a", "X")),
]
"""Colours and markers of everything that is not a scan level; none is on the groups' ramp, or near it."""

_BASELINE = "baseline"

POLICY_STYLES = {
    "balanced": ("#006d2c", "p"),
    "cosine": ("#1f78b4", "8"),
    "mixture": ("#a6611a", "d"),
    "mssim": ("#41ae76", "H"),
    "plateau": ("#0b4f8a", "P"),
    "schedule": ("#6b8e23", "X"),
    "tolerance": ("#17a2b8", "*"),
}
"""Colour and marker of each policy, whatever its changes to the preset: mostly greens and blues, which the
ramp of the groups does not have. Three markers are those of groups 6, 8 and 9, because there are no more."""

_FALLBACK_MARKERS = ("*", "h", "<", ">")

_HUES = (60, 215)
"""Hues in degrees, yellow-green to blue: the groups' ramp goes from orange over red and purple to violet."""

_CHANGED = re.compile(r" \(.*\)")
"""The settings changed from a policy's preset, in its label."""

_LABEL_LETTERS = 30


@contextmanager
def style() -> Iterator[None]:
    """Apply this style to everything drawn inside; the user's own matplotlib settings stay unchanged."""
    with mpl.rc_context({**DEFAULTS, **RC}):
        yield


def fallback_style(name: str) -> tuple[str, str]:
    """Return colour and marker for a name that no table of styles has, derived from the name alone.

    So a user's own policy, codec or echo variant looks the same in every figure and every session.
    """
    digits = zlib.crc32(name.encode())
    low, high = _HUES
    hue, marker = low + digits % (high - low), _FALLBACK_MARKERS[digits // 360 % len(_FALLBACK_MARKERS)]
    return to_hex(colorsys.hsv_to_rgb(hue / 360, 0.55, 0.62)), marker


@dataclass(frozen=True, slots=True)
class ScanLevel:
    """A scan level (columns `scan`, `encoding` and `group`), and its style."""

    label: str
    """From `config.describe.scan_label`, to display and to distinguish levels; no number is read from it."""
    encoding: str = "pcr"
    group: float = math.nan
    """The scan group; NaN for a policy, which reads several."""
    script: str = DEFAULT_NAME
    """The scan script's name."""
    share: float = field(default=math.nan, compare=False)
    """Share of all bytes, if the script is the user's own."""

    @property
    def look(self) -> tuple[str, str]:
        """Colour and marker: the baseline in ink, groups on their ramp, policies from POLICY_LOOKS."""
        if self.encoding == _BASELINE:
            return INK, "s"
        if not math.isnan(self.group):
            return color_in_script(self.group, self.script, self.share), group_marker(self.group)
        known = (look for policy, look in POLICY_STYLES.items() if self.label.startswith(policy))
        return next(known, None) or fallback_style(self.label)

    @property
    def color(self) -> str:
        """The colour of its lines and bars."""
        return self.look[0]

    @property
    def marker(self) -> str:
        """The shape of its points."""
        return self.look[1]

    @property
    def dashes(self) -> str | tuple[int, tuple[float, float]]:
        """The baseline is dashed, policies are dotted, scan groups are solid."""
        if self.encoding == _BASELINE:
            return (0, (4.0, 1.6))
        return (0, (1.2, 1.0)) if math.isnan(self.group) else "-"

    @property
    def words(self) -> str:
        """Its label for display: `group 5`."""
        return describe_scan(self.label)

    @property
    def place(self) -> tuple[bool, float, str]:
        """Sort key of levels: the baseline first, then groups from few bytes to many, then policies."""
        if self.encoding == _BASELINE:
            return (False, 0, self.label)
        is_policy = math.isnan(self.group)
        return (is_policy, 0 if is_policy else self.group, self.label)


def level_of(row: Mapping[Any, Any]) -> ScanLevel:
    """Return the level of a row with `scan`, `encoding`, `group` and, for a user's own script, SHARE."""
    script, share = script_in(row["scan"]), row.get(SHARE)
    return ScanLevel(row["scan"], row["encoding"], row["group"], script, math.nan if share is None else share)


def level_called(name: str) -> ScanLevel:
    """Return the scan level of a name (`config.scan.scan_of`); any other name is taken for a policy."""
    if not is_level(name):
        return ScanLevel(name)
    scan = scan_of(name)
    return ScanLevel(name, scan.encoding, scan.group)


def scan_levels(rows: pd.DataFrame) -> list[tuple[ScanLevel, pd.DataFrame]]:
    """Return each scan level of a table (columns `scan`, `encoding`, `group`) with its rows, in order."""
    levels = {level_of(row) for row in rows.drop_duplicates("scan").to_dict("records")}
    ordered = sorted(levels, key=lambda level: level.place)
    return [(level, rows[rows["scan"] == level.label]) for level in ordered]


def names_of(levels: Sequence[ScanLevel]) -> dict[ScanLevel, str]:
    """Return the names of levels in a figure: a policy's name alone, if the figure has only one of it.

    If there are several, their names include the changes to the preset, in lines of at most 30 letters.
    """
    bare = {level: _CHANGED.sub("", level.words) for level in levels}
    num_of = Counter(bare.values())
    return {
        level: name if num_of[name] == 1 else textwrap.fill(level.words, _LABEL_LETTERS)
        for level, name in bare.items()
    }


def describe_scan(label: str) -> str:
    """Format a label for display: `group_5` -> `group 5`."""
    return label.replace("_", " ")
