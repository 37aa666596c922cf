"""libturbojpeg through ctypes: the lossless transform, and the decoding of a rectangle.

The transform goes through the legacy API because 2.1 and 3.x both have it; rectangles need version 3. ctypes
releases the GIL during calls, so threads work in parallel.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.metadata
import threading
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pcr_exp.errors import ImageError
from pcr_exp.images.source import Pixels


def library_paths() -> Iterator[str]:
    """Where libturbojpeg may be, best first."""
    found = ctypes.util.find_library("turbojpeg")
    if found is not None:
        yield found
    yield "libturbojpeg.so.0"  # find_library needs ldconfig or a compiler; the loader does not
    try:
        files = importlib.metadata.files("turbojpeg") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.parent.name == "turbojpeg.libs" and file.name.startswith("libturbojpeg"):
            yield str(file.locate())


# turbojpeg.h, libjpeg-turbo 2.1
_TJXOP_NONE = 0
_TJXOPT_PROGRESSIVE = 32
_TJXOPT_COPYNONE = 64
_TJFLAG_STOPONWARNING = 8192


class _Transform(ctypes.Structure):
    """`tjtransform`: a region (unused), the operation, its options, and a coefficient filter (unused)."""

    _fields_ = (
        ("x", ctypes.c_int),
        ("y", ctypes.c_int),
        ("w", ctypes.c_int),
        ("h", ctypes.c_int),
        ("op", ctypes.c_int),
        ("options", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("custom_filter", ctypes.c_void_p),
    )


class _Transformer:
    """A transformer of the library, destroyed when it is dropped or its thread ends."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.pointer = library.tjInitTransform()
        if not self.pointer:
            raise MemoryError("libturbojpeg could not make a transformer")
        self.destroy = weakref.finalize(self, library.tjDestroy, self.pointer)


class LibTurboJpeg:
    """The shared library at `path`. OSError: it cannot be loaded; AttributeError: it lacks the calls."""

    def __init__(self, path: str) -> None:
        self.path = path
        library = ctypes.CDLL(path)
        library.tjInitTransform.argtypes = ()
        library.tjInitTransform.restype = ctypes.c_void_p
        library.tjDestroy.argtypes = (ctypes.c_void_p,)
        library.tjFree.argtypes = (ctypes.c_void_p,)
        library.tjFree.restype = None
        library.tjGetErrorStr2.argtypes = (ctypes.c_void_p,)
        library.tjGetErrorStr2.restype = ctypes.c_char_p
        library.tjTransform.argtypes = (
            ctypes.c_void_p,  # handle
            ctypes.c_char_p,  # source bytes
            ctypes.c_ulong,  # source size
            ctypes.c_int,  # number of transforms
            ctypes.POINTER(ctypes.c_void_p),  # destination buffers, allocated by the library
            ctypes.POINTER(ctypes.c_ulong),  # destination sizes
            ctypes.POINTER(_Transform),
            ctypes.c_int,  # flags
        )
        self._library = library
        self._of_thread = threading.local()

    def __call__(self, jpeg: bytes) -> bytes:
        """The same coefficients in libjpeg's default progressive scans, without APPn and COM markers.

        Raises:
            ImageError: the library refuses the bytes or warns about them; the message is the library's.
        """
        library = self._library
        handle: _Transformer | None = getattr(self._of_thread, "handle", None)
        if handle is None:
            handle = self._of_thread.handle = _Transformer(library)
        transform = _Transform(op=_TJXOP_NONE, options=_TJXOPT_PROGRESSIVE | _TJXOPT_COPYNONE)
        buffer, size = ctypes.c_void_p(), ctypes.c_ulong()
        try:
            status = library.tjTransform(
                handle.pointer,
                jpeg,
                len(jpeg),
                1,
                ctypes.byref(buffer),
                ctypes.byref(size),
                ctypes.byref(transform),
                _TJFLAG_STOPONWARNING,
            )
            if status != 0:
                reason = library.tjGetErrorStr2(handle.pointer).decode(errors="replace")
                # A handle that has failed once fails every later call.
                del self._of_thread.handle
                handle.destroy()
                raise ImageError(reason)
            return ctypes.string_at(buffer, size.value)
        finally:
            library.tjFree(buffer)


# turbojpeg.h, libjpeg-turbo 3
_TJINIT_DECOMPRESS = 1
_TJPF_RGB = 0
_TJPARAM_STOPONWARNING, _TJPARAM_SUBSAMP, _TJPARAM_JPEGWIDTH, _TJPARAM_JPEGHEIGHT = 0, 4, 5, 6
_TJPARAM_COLORSPACE = 8
_COLOURS = (0, 1, 2)
"""TJCS_RGB, TJCS_YCbCr, TJCS_GRAY."""
_MCU_PX = {0: (8, 8), 1: (8, 16), 2: (16, 16), 3: (8, 8), 4: (16, 8), 5: (8, 32)}
"""(height, width) of an iMCU by TJSAMP: 444, 422, 420, GRAY, 440, 411."""


class _Region(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int), ("w", ctypes.c_int), ("h", ctypes.c_int))


class _ScalingFactor(ctypes.Structure):
    _fields_ = (("num", ctypes.c_int), ("denom", ctypes.c_int))


class Frame(NamedTuple):
    """An image's size, and the width of its iMCUs, the steps at which rectangles may begin."""

    height_px: int
    width_px: int
    mcu_width_px: int


class _Decompressor:
    """A decompressor of the library, destroyed when it is dropped or its thread ends."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.pointer = library.tj3Init(_TJINIT_DECOMPRESS)
        if not self.pointer:
            raise MemoryError("libturbojpeg could not make a decompressor")
        self.destroy = weakref.finalize(self, library.tj3Destroy, self.pointer)
        library.tj3Set(self.pointer, _TJPARAM_STOPONWARNING, 1)


class PartDecoder:
    """The shared library at `path`. OSError: it cannot be loaded; AttributeError: it is older than 3."""

    def __init__(self, path: str) -> None:
        self.path = path
        library = ctypes.CDLL(path)
        library.tj3Init.argtypes = (ctypes.c_int,)
        library.tj3Init.restype = ctypes.c_void_p
        library.tj3Destroy.argtypes = (ctypes.c_void_p,)
        library.tj3Destroy.restype = None
        library.tj3Set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
        library.tj3Get.argtypes = (ctypes.c_void_p, ctypes.c_int)
        library.tj3GetErrorStr.argtypes = (ctypes.c_void_p,)
        library.tj3GetErrorStr.restype = ctypes.c_char_p
        library.tj3DecompressHeader.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
        library.tj3SetScalingFactor.argtypes = (ctypes.c_void_p, _ScalingFactor)
        library.tj3SetCroppingRegion.argtypes = (ctypes.c_void_p, _Region)
        library.tj3Decompress8.argtypes = (
            ctypes.c_void_p,  # handle
            ctypes.c_char_p,  # source bytes
            ctypes.c_size_t,  # source size
            ctypes.c_void_p,  # destination
            ctypes.c_int,  # bytes from row to row
            ctypes.c_int,  # pixel format
        )
        self._library = library
        self._of_thread = threading.local()

    def read_frame(self, jpeg: bytes) -> Frame:
        """What the header says.

        Raises:
            ImageError: damaged, of four components, or of a subsampling that the library has no name for.
        """
        handle = self._open()
        self._check(self._library.tj3DecompressHeader(handle, jpeg, len(jpeg)))
        get = self._library.tj3Get
        mcu = _MCU_PX.get(get(handle, _TJPARAM_SUBSAMP))
        if mcu is None or get(handle, _TJPARAM_COLORSPACE) not in _COLOURS:
            raise ImageError("parts are decoded of images of one or three components in known subsampling")
        return Frame(get(handle, _TJPARAM_JPEGHEIGHT), get(handle, _TJPARAM_JPEGWIDTH), mcu[1])

    def decode(self, jpeg: bytes, denominator: int, top: int, left: int, rows: int, columns: int) -> Pixels:
        """uint8 [rows, columns, 3] RGB, of the file whose frame was read last in this thread.

        The rectangle is in pixels at 1/denominator of the size, and begins where an iMCU does at that scale.

        Raises:
            ImageError: the file is damaged, or there is no such rectangle; the message is the library's.
        """
        library, handle = self._library, self._open()
        self._check(library.tj3SetScalingFactor(handle, _ScalingFactor(1, denominator)))
        self._check(library.tj3SetCroppingRegion(handle, _Region(left, top, columns, rows)))
        pixels = np.empty((rows, columns, 3), dtype=np.uint8)
        self._check(
            library.tj3Decompress8(handle, jpeg, len(jpeg), pixels.ctypes.data, 3 * columns, _TJPF_RGB)
        )
        return pixels

    def _open(self) -> int:
        handle: _Decompressor | None = getattr(self._of_thread, "handle", None)
        if handle is None:
            handle = self._of_thread.handle = _Decompressor(self._library)
        return int(handle.pointer)

    def _check(self, status: int) -> None:
        if status == 0:
            return
        handle: _Decompressor = self._of_thread.handle
        reason = self._library.tj3GetErrorStr(handle.pointer).decode(errors="replace")
        # A handle that has failed once may fail every later call.
        del self._of_thread.handle
        handle.destroy()
        raise ImageError(reason)


@functools.cache
def find_part_decoder() -> PartDecoder | None:
    """The first libturbojpeg that is new enough: the system's, else the one that the wheel ships."""
    for path in library_paths():
        try:
            return PartDecoder(path)
        except (OSError, AttributeError):
            continue
    return None
