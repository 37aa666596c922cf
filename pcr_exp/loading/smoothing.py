"""libjpeg's block smoothing, switched off through the header of a JPEG in memory.

Where a progressive file lacks coefficients, libjpeg estimates the lowest nine of every block from the means
of the blocks around it (jdcoefct.c, `decompress_smooth_data`). That is most of the time that decoding takes
at the first scan groups. libjpeg has a switch, which no Python package hands on; but it also does without
where one of the quantisers that it would divide by is zero, or no bit of a coefficient is missing
(`smoothing_ok`). So quantisers are zeroed whose coefficients have not come yet, as their products are zero
all the same; and once all have come, those that miss bits are restated (`levels`).

Such a header lives in memory only: stored, it would lose what later scans bring.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pcr_exp.loading.levels import with_level_zero
from pcr_exp.records.jpeg import segments

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


def read_progressive(jpeg: bytes) -> FrameHeader | None:
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


def without_smoothing(jpeg: bytes, header: FrameHeader, group: int) -> bytes | None:
    """The file that decodes to the same pixels as `jpeg` does with libjpeg's block smoothing off.

    None where that cannot be had: it has four components, which are not decoded by libjpeg alone; or luma and
    chroma share a quantisation table, and only some coefficients of chroma have come (groups 3 and 4).

    Args:
        jpeg: scan groups 1 to `group` of a record's image.

    Raises:
        ImageError: the file is damaged.
    """
    luma, *chroma = header.tables
    if len(header.tables) not in _ALL_SCANS or luma not in header.entries:
        return None
    if group >= _ALL_SCANS[len(header.tables)]:
        return jpeg
    if not _detail_is_absent(header, group, shared=luma in chroma):
        return with_level_zero(jpeg)
    entries = header.entries[luma]
    return b"".join((jpeg[: entries.start], bytes(entries.stop - entries.start), jpeg[entries.stop :]))


def _detail_is_absent(header: FrameHeader, group: int, *, shared: bool) -> bool:
    """Whether groups 1 to `group` bring no coefficient that one of the entries is multiplied with.

    Of libjpeg's default scans, luma's AC 6-63 is the fifth of a colour file and the third of a grey one;
    chroma's AC 1-63 are the third and fourth.
    """
    if len(header.tables) == 1:
        return group <= 2
    return group <= (2 if shared else 4)


def _entries(jpeg: bytes, position: int, end: int) -> Iterator[tuple[int, slice]]:
    """(number, place of the entries) of every table in a DQT segment (T.81 B.2.4.1)."""
    while position < end:
        entry_bytes, number = 1 + (jpeg[position] >> 4), jpeg[position] & 15
        first = position + 1
        yield number, slice(first + _ENTRIES.start * entry_bytes, first + _ENTRIES.stop * entry_bytes)
        position = first + 64 * entry_bytes
