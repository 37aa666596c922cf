"""Successive approximation, restated: coefficients whose last bits are missing, as if none were.

A progressive file sends coefficients without their lowest bits first: at level Al, c >> Al times q << Al is
what is decoded. Stating level 0 and the quantiser q << Al gives the same products, and a file in which
nothing is missing, as far as a decoder can tell. Every component gets a quantisation table of its own, as
their levels may differ.
"""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

from pcr_exp.records.jpeg import segments

_DQT_CODE, _SOF2_CODE, _SOS_CODE = 0xDB, 0xC2, 0xDA
_TABLE_BYTES = 65
_LAST_COEFFICIENT = 63
_LARGEST_QUANTISER = 0xFFFF


class _Scan(NamedTuple):
    """A scan of one component's AC coefficients."""

    component: int
    first: int
    last: int
    bits: int
    """Where in the file its two levels (Ah, Al) stand, a nibble each."""


class _Structure(NamedTuple):
    tables: dict[int, bytes]
    """Quantisers in zigzag order by table number."""
    table_segments: list[slice]
    components: dict[int, int]
    """Where in the file the number of a component's table stands."""
    scans: list[_Scan]


def with_level_zero(jpeg: bytes) -> bytes | None:
    """The progressive file that decodes to the same coefficients, each at level 0.

    None where that cannot be said: coefficients have not come at all, quantisers have 16 bits already or need
    more, or the header contradicts itself, which the decoder will say better.

    Raises:
        ImageError: the bytes are not a JPEG, or damaged.
    """
    structure = _read(jpeg)
    levels = _levels(jpeg, structure) if structure else {}
    if structure is None or not levels or not _fits(jpeg, structure, levels):
        return None
    changed = bytearray(jpeg)
    tables = b""
    for number, (component, place) in enumerate(structure.components.items()):
        tables += _table_segment(number, structure.tables[jpeg[place]], levels[component])
        changed[place] = number
    for scan in structure.scans:
        level, high, low = levels[scan.component], jpeg[scan.bits] >> 4, jpeg[scan.bits] & 15
        changed[scan.bits] = (high - level if high else 0) << 4 | low - level
    first, *_ = structure.table_segments
    for segment in reversed(structure.table_segments):
        del changed[segment]
    changed[first.start : first.start] = tables
    return bytes(changed)


def _read(jpeg: bytes) -> _Structure | None:
    tables: dict[int, bytes] = {}
    table_segments, scans, components = [], [], {}
    for segment in segments(jpeg):
        at = segment.payload
        if segment.code == _DQT_CODE:
            table_segments.append(slice(segment.start, segment.end))
            for start in range(at, segment.end, _TABLE_BYTES):
                if jpeg[start] >> 4 != 0:
                    return None
                tables[jpeg[start]] = jpeg[start + 1 : start + _TABLE_BYTES]
                if start + _TABLE_BYTES > segment.end:
                    return None
        elif segment.code == _SOF2_CODE:
            # T.81 B.2.2: from the sixth byte on, three for every component: its name, sampling, table.
            components = {jpeg[i]: i + 2 for i in range(at + 6, segment.end, 3)}
        elif segment.code == _SOS_CODE:
            # T.81 B.2.3: number of components, two bytes for each, then Ss, Se, Ah and Al.
            spectrum = at + 1 + 2 * jpeg[at]
            if jpeg[spectrum] > 0:
                scans.append(_Scan(jpeg[at + 1], jpeg[spectrum], jpeg[spectrum + 1], spectrum + 2))
                if not scans[-1].first <= scans[-1].last <= _LAST_COEFFICIENT:
                    return None
    if not {jpeg[place] for place in components.values()} <= tables.keys():
        return None
    return _Structure(tables, table_segments, components, scans)


def _fits(jpeg: bytes, structure: _Structure, levels: dict[int, int]) -> bool:
    """Whether every scan came down to its component's level, and every restated quantiser has 16 bits."""
    for scan in structure.scans:
        level, high, low = levels.get(scan.component, 16), jpeg[scan.bits] >> 4, jpeg[scan.bits] & 15
        if low < level or 0 < high <= level:
            return False
    for component, place in structure.components.items():
        quantisers = structure.tables[jpeg[place]]
        if max(quantisers[1:]) << levels[component] > _LARGEST_QUANTISER:
            return False
    return True


def _levels(jpeg: bytes, structure: _Structure) -> dict[int, int]:
    """By component, the level of all its AC coefficients; empty unless all have come, to one level."""
    levels: dict[int, int] = {}
    for component in structure.components:
        of_coefficient: list[int] = [-1] * 64
        for scan in structure.scans:
            if scan.component == component:
                of_coefficient[scan.first : scan.last + 1] = [jpeg[scan.bits] & 15] * (
                    scan.last + 1 - scan.first
                )
        level, *others = {*of_coefficient[1:]}
        if others or level < 0:
            return {}
        levels[component] = level
    return levels


@functools.lru_cache(maxsize=1024)  # photographs of one origin share their tables
def _table_segment(number: int, quantisers: bytes, level: int) -> bytes:
    """A DQT segment of 16-bit entries, those of AC times 2^level."""
    values = [quantisers[0], *(value << level for value in quantisers[1:])]
    content = bytes([0x10 | number]) + struct.pack(">64H", *values)
    return b"\xff\xdb" + (2 + len(content)).to_bytes(2, "big") + content
