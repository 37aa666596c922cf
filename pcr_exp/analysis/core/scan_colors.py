"""Colours and shapes of scan groups, the same in every figure, whatever scan script the records have."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex

from pcr_exp.config.records import NUM_GROUPS

_MARKERS = {1: "o", 2: "^", 3: "<", 4: ">", 5: "D", 6: "p", 7: "h", 8: "X", 9: "P", 10: "v"}
_SHARES = {1: 0.061, 2: 0.138, 5: 0.466, 10: 1.0}
"""By scan group of libjpeg's script, its share of the bytes of 1,000 native ImageNet images."""
SHARES_OF_SCRIPTS = {
    "refined_luma": (0.070, 0.151, 0.291, 0.443, 0.644, 0.794, 1.0),
    "spectral": (0.069, 0.123, 0.271, 0.423, 0.559, 1.0),
    "three_bands": (0.070, 0.192, 0.331, 0.483, 0.733, 1.0),
    "two_step": (0.070, 0.275, 0.428, 0.566, 0.831, 1.0),
}
"""The shares of every group of the other named scripts, of native ImageNet images (results/scan_scripts)."""


def group_color(group: float) -> str:
    """The colour of a group of libjpeg's script: light (few bytes) to dark (all).

    Steps are even in the logarithm of the group, so that the paper's 1, 2, 5, 10 are equally far apart, on a
    ramp of even perceived lightness: order survives a black-and-white printer and colour blindness.
    """
    share = math.log(min(group, NUM_GROUPS)) / math.log(NUM_GROUPS)
    return to_hex(mpl.colormaps["plasma"](0.80 - 0.70 * share))


def share_color(share: float) -> str:
    """The colour of a group of another script, by its share of all bytes.

    It is that of the group of libjpeg's script that has this share, on the ramp of `group_color`.
    """
    logarithms = [math.log(group) for group in _SHARES]
    return group_color(math.exp(np.interp(share, [*_SHARES.values()], logarithms)))


def color_in_script(group: float, script: str = "default", share: float = math.nan) -> str:
    """The colour of a group of any script.

    Args:
        group: From 1.
        script: Its name; `default` is libjpeg's.
        share: Of all bytes, of a group of the user's own script. Where it is not known, the number decides.
    """
    if script in SHARES_OF_SCRIPTS:
        return share_color(SHARES_OF_SCRIPTS[script][int(group) - 1])
    return group_color(group) if math.isnan(share) else share_color(share)


def group_marker(group: float) -> str:
    """A shape for every scan group, for readers without colour."""
    return _MARKERS[int(min(group, NUM_GROUPS))]
