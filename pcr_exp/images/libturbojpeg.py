"""libturbojpeg through ctypes: the lossless transform, and decoding of a rectangle.

The transform uses the legacy API because 2.1 and 3.x both have it; rectangles need version 3. ctypes releases
the GIL during calls, so threads work in parallel.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.metadata
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Buffer, Pixels
from pcr_exp.system.c_library import load


def library_paths() -> Iterator[str]:
    """Yield the paths at which libturbojpeg may be, best first."""
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


def pointer(jpeg: Buffer) -> Any:
    """Return the address of the bytes as a ctypes argument. Only read-only views are copied."""
    if isinstance(jpeg, bytes):
        return jpeg
    view = memoryview(jpeg)
    return bytes(view) if view.readonly else ctypes.byref(ctypes.c_char.from_buffer(view))


class _Handle:
    """A library handle, destroyed when it is dropped or its thread ends."""

    def __init__(self, pointer: int | None, destroy: Callable[[int], None]) -> None:
        if not pointer:
            raise MemoryError("libturbojpeg could not make a handle")
        self.pointer = pointer
        self.destroy = weakref.finalize(self, destroy, pointer)


class _Handles:
    """One handle per thread. A handle that failed is replaced, as it would fail every later call."""

    def __init__(
        self,
        make: Callable[[], int | None],
        destroy: Callable[[int], None],
        last_error: Callable[[int], bytes],
    ) -> None:
        self._make, self._destroy, self._last_error = make, destroy, last_error
        self._of_thread = threading.local()

    def get(self) -> int:
        """Return this thread's handle."""
        handle: _Handle | None = getattr(self._of_thread, "handle", None)
        if handle is None:
            handle = self._of_thread.handle = _Handle(self._make(), self._destroy)
        return handle.pointer

    def check(self, status: int) -> None:
        """Raise ImageError with the library's own message if this thread's last call failed."""
        if status == 0:
            return
        handle: _Handle = self._of_thread.handle
        reason = self._last_error(handle.pointer).decode(errors="replace")
        del self._of_thread.handle
        handle.destroy()
        raise ImageError(reason)


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


_TRANSFORM_FUNCTIONS = {
    "tjInitTransform": (ctypes.c_void_p, ()),
    "tjDestroy": (ctypes.c_int, (ctypes.c_void_p,)),
    "tjFree": (None, (ctypes.c_void_p,)),
    "tjGetErrorStr2": (ctypes.c_char_p, (ctypes.c_void_p,)),
    "tjTransform": (
        ctypes.c_int,
        (
            ctypes.c_void_p,  # handle
            ctypes.c_char_p,  # source bytes
            ctypes.c_ulong,  # source size
            ctypes.c_int,  # number of transforms
            ctypes.POINTER(ctypes.c_void_p),  # destination buffers, allocated by the library
            ctypes.POINTER(ctypes.c_ulong),  # destination sizes
            ctypes.POINTER(_Transform),
            ctypes.c_int,  # flags
        ),
    ),
}


class LibTurboJpeg:
    """The shared library at `path`. Raises OSError if it does not load, AttributeError if it lacks calls."""

    def __init__(self, path: str) -> None:
        self.path = path
        library = self._library = load(path, _TRANSFORM_FUNCTIONS)
        self._handles = _Handles(library.tjInitTransform, library.tjDestroy, library.tjGetErrorStr2)

    def __call__(self, jpeg: bytes) -> bytes:
        """Recode the same coefficients in libjpeg's default progressive scans, without APPn and COM markers.

        Raises:
            ImageError: the library rejects the bytes or warns about them; the message is the library's.
        """
        transform = _Transform(op=_TJXOP_NONE, options=_TJXOPT_PROGRESSIVE | _TJXOPT_COPYNONE)
        buffer, size = ctypes.c_void_p(), ctypes.c_ulong()
        try:
            status = self._library.tjTransform(
                self._handles.get(),
                jpeg,
                len(jpeg),
                1,
                ctypes.byref(buffer),
                ctypes.byref(size),
                ctypes.byref(transform),
                _TJFLAG_STOPONWARNING,
            )
            self._handles.check(status)
            return ctypes.string_at(buffer, size.value)
        finally:
            self._library.tjFree(buffer)


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
    """Image size, and iMCU width. libturbojpeg's rectangles begin at multiples of that width."""

    height_px: int
    width_px: int
    mcu_width_px: int


_DECODE_FUNCTIONS = {
    "tj3Init": (ctypes.c_void_p, (ctypes.c_int,)),
    "tj3Destroy": (None, (ctypes.c_void_p,)),
    "tj3Set": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
    "tj3Get": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    "tj3GetErrorStr": (ctypes.c_char_p, (ctypes.c_void_p,)),
    "tj3DecompressHeader": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
    "tj3SetScalingFactor": (ctypes.c_int, (ctypes.c_void_p, _ScalingFactor)),
    "tj3SetCroppingRegion": (ctypes.c_int, (ctypes.c_void_p, _Region)),
    "tj3Decompress8": (
        ctypes.c_int,
        (
            ctypes.c_void_p,  # handle
            ctypes.c_void_p,  # source bytes
            ctypes.c_size_t,  # source size
            ctypes.c_void_p,  # destination
            ctypes.c_int,  # row pitch in bytes
            ctypes.c_int,  # pixel format
        ),
    ),
}


class PartDecoder:
    """The shared library at `path`. Raises OSError if it cannot be loaded, AttributeError if older than 3."""

    is_exact = False

    def __init__(self, path: str) -> None:
        self.path = path
        library = self._library = load(path, _DECODE_FUNCTIONS)

        def make() -> int | None:
            pointer: int | None = library.tj3Init(_TJINIT_DECOMPRESS)
            if pointer:
                library.tj3Set(pointer, _TJPARAM_STOPONWARNING, 1)
            return pointer

        self._handles = _Handles(make, library.tj3Destroy, library.tj3GetErrorStr)

    def read_frame(self, jpeg: Buffer) -> Frame:
        """Return the size and iMCU width of a file.

        Raises:
            ImageError: the file is damaged, has four components, or a subsampling the library does not know.
        """
        handle = self._handles.get()
        self._handles.check(self._library.tj3DecompressHeader(handle, pointer(jpeg), len(jpeg)))
        get = self._library.tj3Get
        mcu = _MCU_PX.get(get(handle, _TJPARAM_SUBSAMP))
        if mcu is None or get(handle, _TJPARAM_COLORSPACE) not in _COLOURS:
            raise ImageError(
                "only images of one or three components in a known subsampling can be decoded in part"
            )
        return Frame(get(handle, _TJPARAM_JPEGHEIGHT), get(handle, _TJPARAM_JPEGWIDTH), mcu[1])

    def decode(self, jpeg: Buffer, denominator: int, top: int, left: int, rows: int, columns: int) -> Pixels:
        """Decode to uint8 [rows, columns, 3] RGB. This thread must have called `read_frame` for `jpeg` last.

        The rectangle is in pixels at 1/denominator of the size. It begins where an iMCU does at that scale.

        Raises:
            ImageError: the file is damaged, or the rectangle is invalid; the message is the library's.
        """
        library, handle, check = self._library, self._handles.get(), self._handles.check
        check(library.tj3SetScalingFactor(handle, _ScalingFactor(1, denominator)))
        check(library.tj3SetCroppingRegion(handle, _Region(left, top, columns, rows)))
        pixels = np.empty((rows, columns, 3), dtype=np.uint8)
        place, step = ctypes.byref(ctypes.c_char.from_buffer(pixels.data)), 3 * columns
        check(library.tj3Decompress8(handle, pointer(jpeg), len(jpeg), place, step, _TJPF_RGB))
        return pixels


@functools.cache
def find_part_decoder() -> PartDecoder | None:
    """Return the first libturbojpeg that is new enough, of the system or the wheel; None if neither is."""
    for path in library_paths():
        try:
            return PartDecoder(path)
        except (OSError, AttributeError):
            continue
    return None
