"""libjpeg's block smoothing, switched off through the header of a JPEG in memory.

Where a progressive file lacks coefficients, libjpeg estimates the lowest nine of every block from the means
of the blocks around it (jdcoefct.c, `decompress_smooth_data`). That is most of the time that decoding takes
at the first scan groups. libjpeg has a switch, which no Python package hands on; but it also does without
where one of the quantisers that it would divide by is zero, or no bit of a coefficient is missing
(`smoothing_ok`). So quantisers are zeroed whose coefficients have not come yet, as their products are zero
all the same; and once all have come, those that miss bits are restated.

Such a header lives in memory only: stored, it would lose what later scans bring.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pcr_exp.images.codec import Buffer
from pcr_exp.images.jpeg import segments

_DQT_CODE, _DHT_CODE, _SOS_CODE = 0xDB, 0xC4, 0xDA
_PROGRESSIVE_CODE = 0xC2
_ENTRIES = slice(6, 10)
"""Zigzag order: of the ten that smoothing looks at, those that the scan of luma AC 1-5 does not bring."""
_ALL_SCANS = {1: 6, 3: 10}
"""By number of components: the group at which nothing is missing any more."""


class FrameHeader(NamedTuple):
    """A progressive file's frame, and where the quantisers of its components stand."""

    height_px: int
    width_px: int
    tables: tuple[int, ...]
    """For every component, the number of its quantisation table; luma comes first."""
    entries: dict[int, slice]
    """By table number: the bytes of the file that hold the entries which smoothing cannot do without."""


def read_progressive(jpeg: Buffer) -> FrameHeader | None:
    """The header up to the first Huffman table or scan; None unless it is that of a progressive file.

    Raises:
        ImageError: the bytes are not a JPEG, or end within the header.
    """
    frame: tuple[int, int, tuple[int, ...]] | None = None
    entries: dict[int, slice] = {}
    for segment in segments(jpeg):
        if segment.code == _DQT_CODE:
            entries.update(_entries(jpeg, segment.payload, segment.end))
        elif segment.code == _PROGRESSIVE_CODE:
            # T.81 B.2.2: precision, lines (2), samples per line (2), components; then three bytes for each.
            fields = jpeg[segment.payload : segment.end]
            frame = (
                int.from_bytes(fields[1:3], "big"),
                int.from_bytes(fields[3:5], "big"),
                tuple(fields[8::3]),
            )
        elif segment.code in (_DHT_CODE, _SOS_CODE):
            break
    return FrameHeader(*frame, entries) if frame else None


def without_smoothing(jpeg: Buffer, header: FrameHeader, group: int) -> Buffer | None:
    """The file that decodes to the same pixels as `jpeg` does with libjpeg's block smoothing off.

    None where that cannot be had: it has four components, which are not decoded by libjpeg alone; or luma and
    chroma share a quantisation table, and only some coefficients of chroma have come (groups 3 and 4).

    Args:
        jpeg: scan groups 1 to `group` of a record's image. What is writable is changed where it lies.

    Raises:
        ImageError: the file is damaged.
    """
    luma, *chroma = header.tables
    if len(header.tables) not in _ALL_SCANS or luma not in header.entries:
        return None
    if group >= _ALL_SCANS[len(header.tables)]:
        return jpeg
    if not _detail_is_absent(header, group, shared=luma in chroma):
        return with_no_bits_missing(jpeg)
    entries = header.entries[luma]
    changed = memoryview(jpeg)
    if changed.readonly:
        changed = memoryview(bytearray(changed))
    changed[entries] = bytes(entries.stop - entries.start)
    return changed


def _detail_is_absent(header: FrameHeader, group: int, *, shared: bool) -> bool:
    """Whether groups 1 to `group` bring no coefficient that one of the entries is multiplied with.

    Of libjpeg's default scans, luma's AC 6-63 is the fifth of a colour file and the third of a grey one;
    chroma's AC 1-63 are the third and fourth.
    """
    if len(header.tables) == 1:
        return group <= 2
    return group <= (2 if shared else 4)


def _entries(jpeg: Buffer, position: int, end: int) -> Iterator[tuple[int, slice]]:
    """(number, place of the entries) of every table in a DQT segment (T.81 B.2.4.1)."""
    while position < end:
        entry_bytes, number = 1 + (jpeg[position] >> 4), jpeg[position] & 15
        first = position + 1
        yield number, slice(first + _ENTRIES.start * entry_bytes, first + _ENTRIES.stop * entry_bytes)
        position = first + 64 * entry_bytes


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
    """Where in the file its two bit positions (Ah, Al in ITU T.81) stand, a nibble each."""


class _Structure(NamedTuple):
    tables: dict[int, bytes]
    """Quantisers in zigzag order by table number."""
    table_segments: list[slice]
    components: dict[int, int]
    """Where in the file the number of a component's table stands."""
    scans: list[_Scan]


def with_no_bits_missing(jpeg: Buffer) -> bytes | None:
    """The progressive file that decodes to the same coefficients, with no bit missing.

    None where that cannot be said: coefficients have not come at all, quantisers have 16 bits already or need
    more, or the header contradicts itself, which the decoder will say better.

    Raises:
        ImageError: the bytes are not a JPEG, or damaged.
    """
    structure = _read(jpeg)
    positions = _bit_positions(jpeg, structure) if structure else {}
    if structure is None or not positions or not _fits(jpeg, structure, positions):
        return None
    changed = bytearray(jpeg)
    tables = b""
    for number, (component, place) in enumerate(structure.components.items()):
        tables += _table_segment(number, structure.tables[jpeg[place]], positions[component])
        changed[place] = number
    for scan in structure.scans:
        position, high, low = positions[scan.component], jpeg[scan.bits] >> 4, jpeg[scan.bits] & 15
        changed[scan.bits] = (high - position if high else 0) << 4 | low - position
    first, *_ = structure.table_segments
    for segment in reversed(structure.table_segments):
        del changed[segment]
    changed[first.start : first.start] = tables
    return bytes(changed)


def _read(jpeg: Buffer) -> _Structure | None:
    tables: dict[int, bytes] = {}
    table_segments, scans, components = [], [], {}
    for segment in segments(jpeg):
        at = segment.payload
        if segment.code == _DQT_CODE:
            table_segments.append(slice(segment.start, segment.end))
            for start in range(at, segment.end, _TABLE_BYTES):
                if jpeg[start] >> 4 != 0:
                    return None
                tables[jpeg[start]] = bytes(jpeg[start + 1 : start + _TABLE_BYTES])
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


def _fits(jpeg: Buffer, structure: _Structure, positions: dict[int, int]) -> bool:
    """Whether every scan came down to its component's last bit, and every restated quantiser has 16 bits."""
    for scan in structure.scans:
        position, high, low = positions.get(scan.component, 16), jpeg[scan.bits] >> 4, jpeg[scan.bits] & 15
        if low < position or 0 < high <= position:
            return False
    for component, place in structure.components.items():
        quantisers = structure.tables[jpeg[place]]
        if max(quantisers[1:]) << positions[component] > _LARGEST_QUANTISER:
            return False
    return True


def _bit_positions(jpeg: Buffer, structure: _Structure) -> dict[int, int]:
    """By component, the last bit of all its AC coefficients; empty unless all have come, to the same one."""
    positions: dict[int, int] = {}
    for component in structure.components:
        of_coefficient: list[int] = [-1] * 64
        for scan in structure.scans:
            if scan.component == component:
                of_coefficient[scan.first : scan.last + 1] = [jpeg[scan.bits] & 15] * (
                    scan.last + 1 - scan.first
                )
        position, *others = {*of_coefficient[1:]}
        if others or position < 0:
            return {}
        positions[component] = position
    return positions


@functools.lru_cache(maxsize=1024)  # images of one origin share their tables
def _table_segment(number: int, quantisers: bytes, position: int) -> bytes:
    """A DQT segment of 16-bit entries, those of AC times 2^position."""
    values = [quantisers[0], *(value << position for value in quantisers[1:])]
    content = bytes([0x10 | number]) + struct.pack(">64H", *values)
    return b"\xff\xdb" + (2 + len(content)).to_bytes(2, "big") + content
