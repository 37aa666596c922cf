"""Decodes JPEGs with `decoder.c` to libjpeg-turbo's unsmoothed pixels, progressive files much faster.

The library is built when the package is installed, if there is a C compiler. Without it, libturbojpeg decodes
to the same pixels. It does not use Python's C API, so one file serves all Python versions. Environment
variables force a code path if the machine supports it: `PCR_EXP_SIMD` (avx2, sse41, neon, plain) and
`PCR_EXP_BITS` (pdep, plain).
"""

from __future__ import annotations

import copy
import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Buffer, Pixels
from pcr_exp.images.libturbojpeg import Frame
from pcr_exp.images.smoothing import Prefix
from pcr_exp.system.c_library import built_library, load_own, opened

VERSION = 2
"""The `pcr_decoder_version` that the ctypes declarations here match."""
_MAX_COMPONENTS = 3


class _Piece(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _File(ctypes.Structure):
    """A piece that is a whole file in `bytes`: the field keeps them alive without creating an array."""

    _fields_ = (("bytes", ctypes.c_char_p), ("size", ctypes.c_size_t))


_HEADER = ctypes.c_int32 * (5 + 3 * _MAX_COMPONENTS)
_PIECES, _NUMBER, _PLACE = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pcr_decoder_version": (_NUMBER, ()),
    "pcr_decoder_paths": (ctypes.c_char_p, ()),
    "pcr_decoder_frame": (_NUMBER, (_PIECES, ctypes.c_size_t, _PLACE)),
    "pcr_decoder_decode": (
        _NUMBER,
        (_PIECES, ctypes.c_size_t, *[_NUMBER] * 5, _PLACE, ctypes.c_ssize_t, ctypes.c_char_p),
    ),
    "pcr_decoder_coefficients": (_NUMBER, (_PIECES, ctypes.c_size_t, _PLACE)),
}


class Layout(NamedTuple):
    """Contents of a file's headers, up to its first scan."""

    frame: Frame
    tables: tuple[int, ...]
    """Number of each component's quantisation table; luma comes first."""
    blocks: tuple[tuple[int, int], ...]
    """Rows and columns of blocks of each component."""
    has_wide_tables: bool
    """Whether any quantisers have 16 bits."""


class JpegDecoder:
    """The shared library at `path`; its calls release the GIL.

    Files are passed as one buffer or as a sequence of buffers. No header and no scan may span two buffers.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks the calls, or has another version.
    """

    is_exact = True

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = load_own(path, _FUNCTIONS, VERSION)
        self._bits: bytes | None = None

    @functools.lru_cache(maxsize=256)  # noqa: B019  # one for each prefix that is read; there is one library
    def only(self, prefix: Prefix) -> JpegDecoder:
        """Return a decoder for files with exactly the bits of `prefix`; others are left to libjpeg.

        If damage hides a scan, libjpeg smooths what is left.
        """
        found = copy.copy(self)
        bits = bytes(bit & 0xFF for bits in prefix.bits for bit in bits)
        found._bits = bits.ljust(64 * _MAX_COMPONENTS)
        return found

    @property
    def paths(self) -> str:
        """The code paths in use on this machine, for pixels and for bits."""
        return str(self._library.pcr_decoder_paths().decode())

    def read_layout(self, jpeg: Buffer | Sequence[Buffer]) -> Layout:
        """Parse the headers up to the first scan.

        Raises:
            ImageError: `decoder.c` does not support the file, which may still be valid.
        """
        height, width, mcu_width, is_wide, count, *of_components = self._read_header(jpeg)
        of_components = of_components[: 3 * count]
        blocks = tuple(zip(of_components[1::3], of_components[2::3], strict=True))
        return Layout(Frame(height, width, mcu_width), tuple(of_components[::3]), blocks, bool(is_wide))

    def read_frame(self, jpeg: Buffer | Sequence[Buffer]) -> Frame:
        """Return the image's size and MCU width. Raises as `read_layout` does."""
        return Frame(*self._read_header(jpeg)[:3])

    def _read_header(self, jpeg: Buffer | Sequence[Buffer]) -> list[int]:
        fields = _HEADER()
        _check(self._library.pcr_decoder_frame(*_pieces(jpeg), fields))
        return list(fields)

    def decode(
        self,
        jpeg: Buffer | Sequence[Buffer],
        denominator: int,
        top: int,
        left: int,
        rows: int,
        columns: int,
        out: Pixels | None = None,
    ) -> Pixels:
        """Decode a rectangle at 1/denominator of the size (rounded up) to uint8 [rows, columns, 3] RGB.

        Scans are read up to the rectangle's last row, so damage beyond it is not noticed. (In records it is:
        their checksums are compared before anything is decoded.)

        Args:
            jpeg: The file; for progressive ones, a prefix of the scans and an end-of-image marker suffice.
            denominator: 1, 2, 4 or 8.
            top: First row, at that scale.
            left: First column, at that scale.
            rows: Number of rows.
            columns: Number of columns.
            out: Destination. Rows may have any stride, but each is contiguous. New memory if not given.

        Raises:
            ImageError: the file is damaged, or not supported here; it is left to libjpeg.
        """
        if out is None:
            out = np.empty((rows, columns, 3), dtype=np.uint8)
        elif out.shape != (rows, columns, 3) or out.dtype != np.uint8 or out.strides[1:] != (3, 1):
            raise ValueError(f"out: wanted uint8 [{rows}, {columns}, 3] with contiguous rows")
        elif not out.flags.writeable:
            raise ValueError("out: wanted an array that can be written to")
        _check(
            self._library.pcr_decoder_decode(
                *_pieces(jpeg),
                denominator,
                *(top, left, rows, columns),
                *(_address(out), out.strides[0]),
                self._bits,
            )
        )
        return out

    def read_coefficients(self, jpeg: Buffer | Sequence[Buffer]) -> list[npt.NDArray[np.int16]]:
        """Read every component's quantised coefficients, int16 [block rows, block columns, 8, 8].

        Raises:
            ImageError: as `decode` does.
        """
        blocks = self.read_layout(jpeg).blocks
        found = [np.empty((rows, columns, 8, 8), dtype=np.int16) for rows, columns in blocks]
        places = (_PLACE * len(found))(*[array.ctypes.data for array in found])
        _check(self._library.pcr_decoder_coefficients(*_pieces(jpeg), places))
        return found


def _address(array: Pixels) -> int:
    address: int = array.__array_interface__["data"][0]  # `.ctypes` runs Python: slow with a cold CPU cache
    return address


def _pieces(jpeg: Buffer | Sequence[Buffer]) -> tuple[Any, int]:
    """Return an array of pieces, which keeps the buffers alive, and their number."""
    if isinstance(jpeg, bytes):
        return ctypes.byref(_File(jpeg, len(jpeg))), 1
    buffers = [jpeg] if isinstance(jpeg, Buffer) else jpeg
    arrays = [np.frombuffer(buffer, np.uint8) if len(buffer) else _NOTHING for buffer in buffers]
    addresses = [(_address(array), array.size) for array in arrays]
    pieces: Any = _array_of(len(arrays))(*addresses)
    pieces.held = arrays
    return pieces, len(arrays)


@functools.cache
def _array_of(count: int) -> Any:
    return _Piece * count


_NOTHING = np.empty(0, dtype=np.uint8)


def _check(status: int) -> None:
    if status != 0:
        raise ImageError("damaged, or not a JPEG that decoder.c supports: left to libjpeg")


def library_path() -> str | None:
    """Return the path of the library built with the package; None if there was no compiler."""
    return built_library("pcr_exp.images._decoder")


@functools.cache
def find_decoder() -> JpegDecoder | None:
    """Return the library built with the package; None if there is none, or it has another version.

    Also None if it would compute pixels in plain C, because libjpeg-turbo's SIMD code is faster. The variable
    `PCR_EXP_SIMD` overrides this.
    """
    found = opened(library_path(), JpegDecoder)
    if found is not None and found.paths.startswith("plain") and "PCR_EXP_SIMD" not in os.environ:
        return None
    return found
