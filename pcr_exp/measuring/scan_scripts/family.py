"""The scripts that are searched, and which of them none other beats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from pcr_exp.config.scan_scripts import JpegScan, ScanScript, ScanScriptConfig, check_scans
from pcr_exp.places import CONFIGS

MIDDLE_GROUP = 5
SLACK = 0.003
"""Of MS-SSIM: what a script's middle prefix may lack of group 5 of libjpeg's script."""
_LAST = 63
_EVERY = (0, 1, 2)
Band = tuple[int, int, int]
"""First and last coefficient of a scan of luma, and the bit that it stops at."""


def named_scripts() -> dict[str, ScanScript]:
    """The options of `records.scans`."""
    found = {}
    for path in sorted((CONFIGS / "records.scans").glob("*.yaml")):
        merged = OmegaConf.merge(OmegaConf.structured(ScanScriptConfig), OmegaConf.load(path))
        config: ScanScriptConfig = OmegaConf.to_object(merged)  # type: ignore[assignment]
        found[config.name] = config.script
    return found


def searched_scripts() -> dict[str, ScanScript]:
    """Luma in one to three bands, each to a bit of its own; chroma early, in the middle or late.

    By names such as `Y 1-5, C, Y 6-63 to bit 1`; then luma is refined, a bit at a time where it lacks it.
    """
    found = {}
    for bands, chroma_low in product(_luma_bands(), (0, 1)):
        if chroma_low and not any(low for _, _, low in bands):
            continue  # refined chroma with whole luma: a scan more, and nothing is earlier for it
        for place in range(1, len(bands) + 1):
            name, script = _script(bands, place, chroma_low)
            found[name] = script
    return found


def _luma_bands() -> Iterator[list[Band]]:
    yield [(1, _LAST, 0)]
    for cut in (5, 9, 20):
        yield [(1, cut, 0), (cut + 1, _LAST, 0)]
        yield [(1, cut, 0), (cut + 1, _LAST, 1)]
    for first, second in ((2, 9), (5, 20), (9, 27)):
        yield [(1, first, 0), (first + 1, second, 0), (second + 1, _LAST, 0)]
    yield [(1, 5, 0), (6, 20, 1), (21, _LAST, 1)]
    for cut in (5, 9):
        yield [(1, cut, 1), (cut + 1, _LAST, 1)]
        yield [(1, cut, 0), (cut + 1, _LAST, 2)]
    yield [(1, 5, 1), (6, _LAST, 2)]
    yield [(1, 5, 2), (6, _LAST, 2)]


def _script(bands: Sequence[Band], place: int, chroma_low: int) -> tuple[str, ScanScript]:
    """Chroma stands after `place` bands of luma."""
    luma = [JpegScan((0,), first, last, 0, low) for first, last, low in bands]
    chroma = [JpegScan((component,), 1, _LAST, 0, chroma_low) for component in (2, 1)]
    scans = [JpegScan(_EVERY, 0, 0, 0, 0), *luma[:place], *chroma, *luma[place:]]
    for low in range(max(low for _, _, low in bands), 0, -1):
        lacking = [band for band in bands if band[2] >= low]
        scans.append(JpegScan((0,), lacking[0][0], lacking[-1][1], low, low - 1))
    scans += [JpegScan((component,), 1, _LAST, 1, 0) for component in (2, 1) if chroma_low]
    words = [f"Y {first}-{last}{f' to bit {low}' if low else ''}" for first, last, low in bands]
    words.insert(place, f"C{' to bit 1' if chroma_low else ''}")
    check_scans("searched", scans)
    return ", ".join(words), ScanScript(tuple(scans))


def is_on_front(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Bool [n]: whether no other row is at most as large in every column, and smaller in one.

    Args:
        costs: [n, columns]; NaN is larger than all.
    """
    filled = np.nan_to_num(costs, nan=np.inf)
    no_worse = (filled[:, None] <= filled[None]).all(axis=2)
    better = (filled[:, None] < filled[None]).any(axis=2)
    beaten = np.asarray(np.any(no_worse & better, axis=0))
    return ~beaten
