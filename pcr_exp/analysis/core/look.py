"""One look for all figures: readable in a README, on paper without colour, and by colour-blind eyes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.colors import to_hex

from pcr_exp.config.records import NUM_GROUPS

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
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}

DEFAULTS = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")}

MARKERS = {1: "o", 2: "^", 3: "<", 4: ">", 5: "D", 6: "p", 7: "h", 8: "X", 9: "P", 10: "v"}
BASELINE, BASELINE_MARKER = "baseline", "s"
POLICY_LOOKS = {
    "balanced": ("#006d2c", "p"),
    "cosine": ("#1f78b4", "8"),
    "mixture": ("#a6611a", "d"),
    "mssim": ("#41ae76", "H"),
    "plateau": ("#0b4f8a", "P"),
    "schedule": ("#6b8e23", "X"),
}
"""Policies choose groups, and are none: greens and blues, which the ramp of the groups does not have. Three
shapes are those of groups 6, 8 and 9, as there are no more.
"""
OTHER_LOOK = ("#7f7f7f", ".")
_LONGEST_LABEL = 24


@contextmanager
def style() -> Iterator[None]:
    """Everything drawn inside looks alike; the user's own matplotlib settings are left as they were."""
    with mpl.rc_context({**DEFAULTS, **RC}):
        yield


def scan_color(scan: str) -> str:
    """The colour of a scan level, the same in every figure: `baseline` ink, group_1 light to group_10 dark;
    policies as POLICY_LOOKS has them, under names that begin with theirs.

    Steps are even in the logarithm of the group, so that the paper's 1, 2, 5, 10 are equally far apart, on a
    ramp of even perceived lightness: order survives a black-and-white printer and colour blindness.
    """
    group = scan_group(scan)
    if group is None:
        return INK if scan == BASELINE else _policy_look(scan)[0]
    share = math.log(min(group, NUM_GROUPS)) / math.log(NUM_GROUPS)
    return to_hex(mpl.colormaps["plasma"](0.80 - 0.70 * share))


def scan_marker(scan: str) -> str:
    """A shape for every scan level, for readers without colour."""
    group = scan_group(scan)
    if group is None:
        return BASELINE_MARKER if scan == BASELINE else _policy_look(scan)[1]
    return MARKERS[min(group, NUM_GROUPS)]


def scan_dashes(scan: str) -> str | tuple[int, tuple[float, float]]:
    """The baseline is dashed, policies are dotted, scan groups are solid."""
    if scan_group(scan) is not None:
        return "-"
    return (0, (4.0, 1.6)) if scan == BASELINE else (0, (1.2, 1.0))


def scan_words(scan: str) -> str:
    """`group_5` -> `group 5`"""
    return scan.replace("_", " ")


def short_scan_label(scan: str) -> str:
    """`scan_words`, with what was changed of a policy's preset cut to as much as a figure has room for."""
    label = scan_words(scan)
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}...)"


def scan_group(scan: str) -> int | None:
    """The number in `group_5`; None for `baseline` and policies, which read none or several."""
    stem, _, number = scan.rpartition("_")
    return int(number) if stem == "group" and number.isdigit() and int(number) >= 1 else None


def scan_order(scans: Iterable[str]) -> list[str]:
    """Distinct scan levels: the baseline first, then groups from few bytes to many, then policies."""

    def place(scan: str) -> tuple[bool, int, str]:
        group = scan_group(scan)
        return (group is None and scan != BASELINE, group or 0, scan)

    return sorted(set(scans), key=place)


def _policy_look(scan: str) -> tuple[str, str]:
    return next((look for policy, look in POLICY_LOOKS.items() if scan.startswith(policy)), OTHER_LOOK)
