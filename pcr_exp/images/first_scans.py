"""Groups 1 and 2, at 1/8 and 1/2, by `first_scans.c`: libjpeg-turbo's pixels, in about half of its time.

The library is built where the package is installed, if there is a C compiler. Without it, libturbojpeg
decodes these groups too, to the same pixels. It calls no Python: what is built for one version serves all.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Buffer, Pixels
from pcr_exp.images.libturbojpeg import Frame, pointer
from pcr_exp.system.c_library import built_library, load_own, opened

DENOMINATORS = (2, 8)
"""At which fractions of the size it decodes."""
VERSION = 1
"""`pcr_first_scans_version` of the library that these types are of."""
_BLOCK_PX = 8
_BYTES, _NUMBER = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS = {
    "pcr_first_scans_version": (_NUMBER, ()),
    "pcr_first_scans_frame": (_NUMBER, (_BYTES, ctypes.c_size_t, _BYTES)),
    "pcr_first_scans_decode": (_NUMBER, (_BYTES, ctypes.c_size_t, *[_NUMBER] * 5, _BYTES)),
}


class FirstScansDecoder:
    """The shared library at `path`.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks the calls, or is of another version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = load_own(path, _FUNCTIONS, VERSION)

    def read_frame(self, jpeg: Buffer) -> Frame:
        """What the header says.

        Raises:
            ImageError: it is no file as `first_scans.c` reads them; it may be a good one.
        """
        fields = (ctypes.c_int32 * 3)()
        _check(self._library.pcr_first_scans_frame(pointer(jpeg), len(jpeg), ctypes.byref(fields)))
        height, width, mcu_blocks = fields
        return Frame(height, width, _BLOCK_PX * mcu_blocks)

    def decode(self, jpeg: Buffer, denominator: int, top: int, left: int, rows: int, columns: int) -> Pixels:
        """uint8 [rows, columns, 3] RGB: a rectangle in pixels at 1/denominator of the size.

        Raises:
            ImageError: libjpeg should say what is wrong with the file, or is needed for it.
        """
        pixels = np.empty((rows, columns, 3), dtype=np.uint8)
        place = ctypes.byref(ctypes.c_char.from_buffer(pixels.data))
        _check(
            self._library.pcr_first_scans_decode(
                pointer(jpeg), len(jpeg), denominator, top, left, rows, columns, place
            )
        )
        return pixels


def _check(status: int) -> None:
    if status != 0:
        raise ImageError("not a JPEG of one or two scans that are as wanted: left to libjpeg")


def library_path() -> str | None:
    """The library that was built with the package; None where there was no compiler."""
    return built_library("pcr_exp.images._first_scans")


@functools.cache
def find_first_scans_decoder() -> FirstScansDecoder | None:
    """The library that was built with the package, if it was, and is of this version."""
    return opened(library_path(), FirstScansDecoder)
