"""Arbitrary coefficients as JPEG files for libjpeg-turbo, and as blocks for our decoder's pixel stage."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

ZIGZAG = np.array(
    sorted(range(64), key=lambda n: (s := n // 8 + n % 8, n // 8 if s % 2 else n % 8)), dtype=np.intp
)
"""Natural position of each position in zigzag order."""
DC_BITS, AC_BITS = 5, 9
"""Lengths in bits of the Huffman codes for 16 categories and 256 symbols; the all-ones code stays free."""


class Blocks(NamedTuple):
    """A component in whole MCUs, in natural order: coefs int16 [rows, columns, 64] and quantisers [64]."""

    coefs: np.ndarray
    quantisers: np.ndarray
    h: int = 1
    v: int = 1


def blocks_of(coefs: np.ndarray, quantisers: np.ndarray, h: int, v: int, mcus: tuple[int, int]) -> Blocks:
    """Pad a component of a file, [rows, columns, 8, 8], to whole MCUs."""
    whole = np.zeros((mcus[0] * v, mcus[1] * h, 64), np.int16)
    rows, columns = min(coefs.shape[0], whole.shape[0]), min(coefs.shape[1], whole.shape[1])
    whole[:rows, :columns] = coefs[:rows, :columns].reshape(rows, columns, 64)
    return Blocks(whole, quantisers.reshape(64), h, v)


def segment(code: int, payload: bytes) -> bytes:
    return bytes((0xFF, code)) + (2 + len(payload)).to_bytes(2, "big") + payload


def huffman_table(number: int, bits: int, num_symbols: int) -> bytes:
    most = min(num_symbols, 255)  # the count must fit a byte: the 256th code is one bit longer
    counts = bytes({bits: most, bits + 1: num_symbols - most}.get(n, 0) for n in range(1, 17))
    return segment(0xC4, bytes((number,)) + counts + bytes(range(num_symbols)))


def code_of_symbol(symbol: int, bits: int) -> tuple[int, int]:
    return (255 << 1, bits + 1) if symbol == 255 else (symbol, bits)


def coded_block(block: list[int], predicted: int) -> tuple[str, int]:
    """Return the bits of 64 coefficients in zigzag order, and the next DC prediction."""
    words: list[tuple[int, int]] = []

    def add(symbol: int, bits: int, value: int) -> None:
        category = abs(value).bit_length()
        words.extend((code_of_symbol(symbol | category, bits), (value - (value < 0), category)))

    add(0, DC_BITS, block[0] - predicted)
    run = 0
    for value in block[1:]:
        if value == 0:
            run += 1
            continue
        words.extend([(0xF0, AC_BITS)] * (run // 16))
        add(run % 16 << 4, AC_BITS, value)
        run = 0
    if run:
        words.append((0, AC_BITS))
    return "".join(f"{word & (1 << bits) - 1:0{bits}b}" for word, bits in words if bits), block[0]


def to_jpeg(planes: list[Blocks], width: int, height: int) -> bytes:
    """Write a sequential file. |coefficient| and |DC difference| are at most 32767, quantisers 65535."""
    frame = b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes((len(planes),))
    scan, parts = bytes((len(planes),)), [b"\xff\xd8"]
    for i, plane in enumerate(planes):
        table = plane.quantisers[ZIGZAG].astype(">u2").tobytes()
        parts.append(segment(0xDB, bytes((0x10 | i,)) + table))
        frame += bytes((i + 1, plane.h << 4 | plane.v, i))
        scan += bytes((i + 1, 0))
    parts += [segment(0xC1, frame), huffman_table(0, DC_BITS, 16), huffman_table(0x10, AC_BITS, 256)]
    parts.append(segment(0xDA, scan + b"\x00\x3f\x00"))
    bits: list[str] = []
    predicted = [0] * len(planes)
    blocks = [plane.coefs[..., ZIGZAG].tolist() for plane in planes]
    for y in range(planes[0].coefs.shape[0] // planes[0].v):
        for x in range(planes[0].coefs.shape[1] // planes[0].h):
            for i, plane in enumerate(planes):
                for row in blocks[i][y * plane.v : (y + 1) * plane.v]:
                    for block in row[x * plane.h : (x + 1) * plane.h]:
                        coded, predicted[i] = coded_block(block, predicted[i])
                        bits.append(coded)
    joined = "".join(bits)
    joined += "1" * (-len(joined) % 8)
    data = int(joined, 2).to_bytes(len(joined) // 8, "big").replace(b"\xff", b"\xff\x00")
    return b"".join([*parts, data, b"\xff\xd9"])


class _Plane(ctypes.Structure):
    _fields_ = (
        ("coefs", ctypes.c_void_p),
        ("masks", ctypes.c_void_p),
        ("quantisers", ctypes.c_uint16 * 64),
        ("h", ctypes.c_int),
        ("v", ctypes.c_int),
        ("size", ctypes.c_int),
        *((name, ctypes.c_size_t) for name in ("columns", "rows", "width", "height")),
        ("samples", ctypes.c_void_p),
        ("stride", ctypes.c_ssize_t),
    )


def shown(
    library: ctypes.CDLL,
    planes: list[Blocks],
    width: int,
    height: int,
    size: int = 8,
    rectangle: tuple[int, int, int, int] | None = None,
) -> np.ndarray:
    """Return RGB [rows, columns, 3] at `size` eighths: all, or rectangle (top, left, bottom, right)."""
    given = (_Plane * len(planes))()
    kept = []
    for place, plane in zip(given, planes, strict=True):
        coefs = np.ascontiguousarray(plane.coefs, np.int16)
        bits = np.packbits(coefs[..., ZIGZAG] != 0, -1, bitorder="little")
        masks = np.ascontiguousarray(bits).view(np.uint64)
        kept += [coefs, masks]
        place.coefs, place.masks = coefs.ctypes.data, masks.ctypes.data
        place.quantisers[:] = plane.quantisers.tolist()
        place.h, place.v = plane.h, plane.v
        place.rows, place.columns = coefs.shape[:2]
    top, left, bottom, right = rectangle or (0, 0, -(-height * size // 8), -(-width * size // 8))
    out = np.empty((bottom - top, right - left, 3), np.uint8)
    status = library.show(
        given,
        len(planes),
        ctypes.c_size_t(width),
        ctypes.c_size_t(height),
        size,
        (ctypes.c_size_t * 4)(top, left, bottom, right),
        ctypes.c_void_p(out.ctypes.data),
    )
    assert status == 0
    return out
