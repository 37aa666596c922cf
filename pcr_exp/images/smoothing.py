"""libjpeg's block smoothing, switched off through the header of a JPEG in memory.

Pure functions of the script, so that decoders look nothing up in a file that the script says already.

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
from dataclasses import dataclass
from typing import NamedTuple

from pcr_exp.config.scan_scripts import LAST_COEFFICIENT, ScanScript
from pcr_exp.images.codec import Buffer
from pcr_exp.images.jpeg import segments

ABSENT = -1

SMOOTHED = range(1, 10)
"""The AC coefficients that libjpeg's block smoothing looks at and estimates, in zigzag order."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The coefficients in groups 1 to g of an image."""

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
    """The coefficients in groups 1 to `group` of an image with so many components.

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
    frequencies = [(row, column) for row in range(8) for column in range(8)]
    return sorted(frequencies, key=lambda p: (p[0] + p[1], p[0] if (p[0] + p[1]) % 2 else p[1]))


_FREQUENCIES = [max(pair) for pair in _zigzag()]
"""By place in zigzag order, the higher of the two frequencies."""

_DQT_CODE, _DHT_CODE, _SOS_CODE = 0xDB, 0xC4, 0xDA

_PROGRESSIVE_CODE = 0xC2


class FrameHeader(NamedTuple):
    """A progressive file's frame, and where its quantisers stand."""

    height_px: int
    width_px: int
    tables: tuple[int, ...]
    """For every component, the number of its quantisation table; luma comes first."""
    entries: dict[int, tuple[int, int]]
    """By table number: where in the file its 64 entries begin, in zigzag order, and the bytes of each."""


def read_progressive(jpeg: Buffer) -> FrameHeader | None:
    """The header up to the first Huffman table or scan; None unless the file is progressive.

    Raises:
        ImageError: the bytes are not a JPEG, or end within the header.
    """
    frame: tuple[int, int, tuple[int, ...]] | None = None
    entries: dict[int, tuple[int, int]] = {}
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


def without_smoothing(jpeg: Buffer, header: FrameHeader, prefix: Prefix) -> Buffer | None:
    """The file that decodes to the same pixels as `jpeg` does with libjpeg's block smoothing off.

    None where that cannot be had: it has four components, which are not decoded by libjpeg alone, or others
    than the prefix; or components share a quantisation table, and one has coefficients that another lacks (of
    libjpeg's script groups 3 and 4, if luma and chroma share one); or coefficients that have all come miss
    different numbers of bits.

    Args:
        jpeg: The first scan groups of a record's image. What is writable is changed where it lies.
        header: Its own.
        prefix: What these groups hold.

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
    """Whether `without_smoothing` finds a way, by what its arguments say: components' tables, and their bits.

    A decoder that never smooths asks, to leave the other files to the one that then does.
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
    """(number, (place of the entries, bytes of each)) of every table in a DQT segment (T.81 B.2.4.1)."""
    while position < end:
        entry_bytes, number = 1 + (jpeg[position] >> 4), jpeg[position] & 15
        yield number, (position + 1, entry_bytes)
        position += 1 + 64 * entry_bytes


_TABLE_BYTES = 65

_LAST_COEFFICIENT = 63

_LARGEST_QUANTISER = 0xFFFF

_MOST_BITS_MISSING = 8
"""By which any quantiser of 8 bits can be restated."""


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
            # T.81 B.2.2: from the sixth byte on, three for every component: its name, sampling, table.
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
    """Whether every scan came down to its component's last bit, and every restated quantiser has 16 bits."""
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
