"""Switches off libjpeg's block smoothing by editing the header of a JPEG in memory.

The contents of a prefix of scans follow from the scan script, so decoders need not parse the file for them.

Where a progressive file lacks coefficients, libjpeg estimates the nine lowest AC coefficients of every block
from the means of the surrounding blocks (jdcoefct.c, `decompress_smooth_data`). This takes most of the
decoding time at the first scan groups. No Python package exposes libjpeg's switch for it. But libjpeg also
skips smoothing if a quantiser that it would divide by is zero, or if no coefficient lacks bits
(`smoothing_ok`). Hence quantisers whose coefficients have not arrived yet are set to zero, which leaves their
products zero. Once all have arrived, quantisers are rescaled so that no bits count as missing.

The edited header must stay in memory. If it were stored, what later scans add would be lost.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pcr_exp.config.scan_scripts import LAST_COEFFICIENT, ScanScript
from pcr_exp.images.codec import Buffer
from pcr_exp.images.jpeg import segments

ABSENT = -1

SMOOTHED = range(1, 10)
"""The AC coefficients that libjpeg's block smoothing inspects and estimates, in zigzag order."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The coefficients in groups 1 to g of an image."""

    bits: tuple[tuple[int, ...], ...]
    """[components][64]: lowest bit received of each coefficient, in zigzag order, or ABSENT."""
    denominator: int
    """1/denominator is the smallest scale at which libjpeg's inverse DCT uses all of these coefficients. It
    takes the 8/denominator lowest frequencies along each axis."""
    is_smoothed: bool
    """Whether libjpeg would smooth, because bits that block smoothing estimates are missing."""

    def absent(self, tables: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        """By quantisation table, the entries in `SMOOTHED` that no received coefficient uses yet.

        Args:
            tables: Number of each component's quantisation table.
        """
        return _absent(self, tables)


@functools.cache
def prefix_of(script: ScanScript, num_components: int, group: int) -> Prefix:
    """The coefficients in groups 1 to `group` of an image with `num_components` components.

    Scan i is in group i. Surplus scans, which images of four components have, are in the last group.
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
    frequencies = [(row, column) for row in range(8) for column in range(8)]
    return sorted(frequencies, key=lambda p: (p[0] + p[1], p[0] if (p[0] + p[1]) % 2 else p[1]))


_FREQUENCIES = [max(pair) for pair in _zigzag()]
"""By zigzag position, the higher of the vertical and horizontal frequencies."""

_DQT_CODE, _DHT_CODE, _SOS_CODE = 0xDB, 0xC4, 0xDA

_PROGRESSIVE_CODE = 0xC2


class FrameHeader(NamedTuple):
    """Frame of a progressive file, and the positions of its quantisers."""

    height_px: int
    width_px: int
    tables: tuple[int, ...]
    """Number of each component's quantisation table; luma comes first."""
    entries: dict[int, tuple[int, int]]
    """By table number: file offset of its 64 entries, which are in zigzag order, and bytes per entry."""


def read_progressive(jpeg: Buffer) -> FrameHeader | None:
    """Parse the header up to the first Huffman table or scan; None unless the file is progressive.

    Raises:
        ImageError: the bytes are not a JPEG, or end within the header.
    """
    frame: tuple[int, int, tuple[int, ...]] | None = None
    entries: dict[int, tuple[int, int]] = {}
    for segment in segments(jpeg):
        if segment.code == _DQT_CODE:
            entries.update(_entries(jpeg, segment.payload, segment.end))
        elif segment.code == _PROGRESSIVE_CODE:
            # T.81 B.2.2: precision, lines (2), samples per line (2), components; then three bytes each.
            fields = jpeg[segment.payload : segment.end]
            frame = (
                int.from_bytes(fields[1:3], "big"),
                int.from_bytes(fields[3:5], "big"),
                tuple(fields[8::3]),
            )
        elif segment.code in (_DHT_CODE, _SOS_CODE):
            break
    return FrameHeader(*frame, entries) if frame else None


def without_smoothing(jpeg: Buffer, header: FrameHeader, prefix: Prefix) -> Buffer | None:
    """Return a file that decodes to the pixels of `jpeg` with libjpeg's block smoothing off.

    None where that is impossible: if the image has four components (libjpeg alone does not decode those) or
    others than the prefix; if components share a quantisation table, and one has coefficients that another
    lacks (groups 3 and 4 of libjpeg's script, if luma and chroma share one); or if all coefficients of a
    component have arrived, but lack different numbers of bits.

    Args:
        jpeg: The first scan groups of a record's image. A writable buffer may be modified in place.
        header: Header of `jpeg`.
        prefix: Coefficients that these groups hold.

    Raises:
        ImageError: the file is damaged.
    """
    tables = header.tables
    if len(tables) not in (1, 3) or len(tables) != len(prefix.bits) or tables[0] not in header.entries:
        return None
    if not prefix.is_smoothed:
        return jpeg
    for table, coefficients in prefix.absent(tables).items():
        if table in header.entries:
            return _with_zeros(jpeg, *header.entries[table], coefficients)
    return with_no_bits_missing(jpeg)


@functools.cache
def can_be_switched_off(prefix: Prefix, tables: tuple[int, ...], *, has_wide_tables: bool) -> bool:
    """Whether `without_smoothing` would succeed, judged from the components' bits and quantisation tables.

    A decoder that never smooths checks this, and leaves the other files to libjpeg, which smooths them.
    """
    if len(tables) != len(prefix.bits):
        return False
    if not prefix.is_smoothed or prefix.absent(tables):
        return True
    lowest = [{*bits[1:]} for bits in prefix.bits]
    are_even = all(len(bits) == 1 and bits != {ABSENT} for bits in lowest)
    return are_even and not has_wide_tables and max(map(max, lowest)) <= _MOST_BITS_MISSING


def _with_zeros(jpeg: Buffer, first: int, entry_bytes: int, coefficients: tuple[int, ...]) -> Buffer:
    changed = memoryview(jpeg)
    if changed.readonly:
        changed = memoryview(bytearray(changed))
    for coefficient in coefficients:
        start = first + coefficient * entry_bytes
        changed[start : start + entry_bytes] = bytes(entry_bytes)
    return changed


def _entries(jpeg: Buffer, position: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield (number, (offset of the entries, bytes each)) for every table of a DQT segment (T.81 B.2.4.1)."""
    while position < end:
        entry_bytes, number = 1 + (jpeg[position] >> 4), jpeg[position] & 15
        yield number, (position + 1, entry_bytes)
        position += 1 + 64 * entry_bytes


_TABLE_BYTES = 65

_LAST_COEFFICIENT = 63

_LARGEST_QUANTISER = 0xFFFF

_MOST_BITS_MISSING = 8
"""Any 8-bit quantiser, shifted left by this many bits, fits into 16 bits."""


class _Scan(NamedTuple):
    """A scan of one component's AC coefficients."""

    component: int
    first: int
    last: int
    bits: int
    """File offset of the byte with its two bit positions (Ah and Al in ITU T.81), a nibble each."""


class _Structure(NamedTuple):
    tables: dict[int, bytes]
    """By table number, the quantisers in zigzag order."""
    table_segments: list[slice]
    components: dict[int, int]
    """By component, the file offset of its quantisation table's number."""
    scans: list[_Scan]


def with_no_bits_missing(jpeg: Buffer) -> bytes | None:
    """Return a progressive file that decodes to the same dequantised coefficients and lacks no bits.

    None if coefficients have not arrived at all or lack different numbers of bits, if quantisers have 16 bits
    already or would need more, or if the header contradicts itself, which the decoder reports better.

    Raises:
        ImageError: the bytes are not a JPEG, or damaged.
    """
    structure = _read(jpeg)
    positions = _bit_positions(jpeg, structure) if structure else {}
    if structure is None or not positions or not _fits(jpeg, structure, positions):
        return None
    changed = bytearray(jpeg)
    tables = b""
    for number, (component, at) in enumerate(structure.components.items()):
        tables += _table_segment(number, structure.tables[jpeg[at]], positions[component])
        changed[at] = number
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
        elif segment.code == _PROGRESSIVE_CODE:
            # T.81 B.2.2: from offset 6 on, three bytes per component: its id, sampling factors, table.
            components = {jpeg[i]: i + 2 for i in range(at + 6, segment.end, 3)}
        elif segment.code == _SOS_CODE:
            # T.81 B.2.3: number of components, two bytes for each, then Ss, Se, Ah and Al.
            spectrum = at + 1 + 2 * jpeg[at]
            if jpeg[spectrum] > 0:
                scans.append(_Scan(jpeg[at + 1], jpeg[spectrum], jpeg[spectrum + 1], spectrum + 2))
                if not scans[-1].first <= scans[-1].last <= _LAST_COEFFICIENT:
                    return None
    if not {jpeg[at] for at in components.values()} <= tables.keys():
        return None
    return _Structure(tables, table_segments, components, scans)


def _fits(jpeg: Buffer, structure: _Structure, positions: dict[int, int]) -> bool:
    """Whether, once rescaled, all bit positions of scans are valid and all quantisers fit into 16 bits."""
    for scan in structure.scans:
        position, high, low = positions.get(scan.component, 16), jpeg[scan.bits] >> 4, jpeg[scan.bits] & 15
        if low < position or 0 < high <= position:
            return False
    for component, at in structure.components.items():
        quantisers = structure.tables[jpeg[at]]
        if max(quantisers[1:]) << positions[component] > _LARGEST_QUANTISER:
            return False
    return True


def _bit_positions(jpeg: Buffer, structure: _Structure) -> dict[int, int]:
    """By component, the lowest bit of its AC coefficients; empty unless all arrived, down to the same bit."""
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


@functools.lru_cache(maxsize=1024)  # images from one source share their tables
def _table_segment(number: int, quantisers: bytes, position: int) -> bytes:
    """A DQT segment of 16-bit entries, with the AC entries multiplied by 2^position."""
    values = [quantisers[0], *(value << position for value in quantisers[1:])]
    content = bytes([0x10 | number]) + struct.pack(">64H", *values)
    return b"\xff\xdb" + (2 + len(content)).to_bytes(2, "big") + content
