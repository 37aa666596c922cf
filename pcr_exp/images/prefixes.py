"""What the first scans of a script bring: at which scale they can be decoded, and where libjpeg smooths.

Pure functions of the script, so that decoders look nothing up in a file that the script says already.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pcr_exp.config.scan_scripts import LAST_COEFFICIENT, ScanScript

ABSENT = -1
SMOOTHED = range(1, 10)
"""The AC coefficients that libjpeg's block smoothing looks at and estimates, in zigzag order."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """What groups 1 to g of an image hold."""

    bits: tuple[tuple[int, ...], ...]
    """[components][64]: the lowest bit that has come of each coefficient in zigzag order, or ABSENT."""
    denominator: int
    """1/denominator of the size is the smallest at which libjpeg's inverse DCT shows all of it: it takes the
    coefficients of the lowest 8/denominator frequencies along each axis."""
    is_smoothed: bool
    """Whether libjpeg would smooth: bits are missing that block smoothing estimates."""

    def absent(self, tables: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        """By quantisation table, its entries that nothing is multiplied with yet, of those that count.

        Args:
            tables: For every component, the number of its table.
        """
        return _absent(self, tables)


@functools.cache
def prefix_of(script: ScanScript, num_components: int, group: int) -> Prefix:
    """What groups 1 to `group` of an image with so many components hold.

    Scan i is in group i; surplus scans, of four components, are in the last.
    """
    scans = script.scans_of(num_components)
    read = scans if group >= script.num_groups else scans[:group]
    bits = [[ABSENT] * (LAST_COEFFICIENT + 1) for _ in range(num_components)]
    for scan in read:
        for component in scan.components:
            bits[component][scan.first : scan.last + 1] = [scan.low] * (scan.last + 1 - scan.first)
    highest = max(_FREQUENCIES[i] for lowest in bits for i, bit in enumerate(lowest) if bit != ABSENT)
    denominator = next(d for d in (8, 4, 2, 1) if highest < 8 // d)
    is_smoothed = any(lowest[i] != 0 for lowest in bits for i in SMOOTHED)
    return Prefix(tuple(map(tuple, bits)), denominator, is_smoothed)


@functools.cache
def _absent(prefix: Prefix, tables: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    found = {}
    for table in tables:
        of_table = [bits for bits, number in zip(prefix.bits, tables, strict=True) if number == table]
        entries = tuple(i for i in SMOOTHED if all(bits[i] == ABSENT for bits in of_table))
        if entries:
            found[table] = entries
    return found


def _zigzag() -> list[tuple[int, int]]:
    """(row, column) of every coefficient in zigzag order (T.81, figure 5)."""
    places = [(row, column) for row in range(8) for column in range(8)]
    return sorted(places, key=lambda p: (p[0] + p[1], p[0] if (p[0] + p[1]) % 2 else p[1]))


_FREQUENCIES = [max(place) for place in _zigzag()]
"""By place in zigzag order, the higher of the two frequencies."""
