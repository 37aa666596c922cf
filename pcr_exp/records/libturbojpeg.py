"""libturbojpeg through ctypes: one call, the lossless transform.

The legacy API is used because 2.1 and 3.x both have it. ctypes releases the GIL during the call, so threads
transcode in parallel.
"""

from __future__ import annotations

import ctypes
import threading
import weakref

from pcr_exp.errors import ImageError

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


class _Handle:
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
        handle: _Handle | None = getattr(self._of_thread, "handle", None)
        if handle is None:
            handle = self._of_thread.handle = _Handle(library)
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
