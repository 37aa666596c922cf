"""Memory shared with worker processes, reused from batch to batch.

A batch of 64 images of 224 x 224 px takes 2,352 pages. Without reuse, every batch would clear these pages,
map them in two processes and pass a file descriptor.
"""

from __future__ import annotations

import itertools
import math
import mmap
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

_numbers = itertools.count()
_shared_buffers: weakref.WeakValueDictionary[int, SharedBuffer] = weakref.WeakValueDictionary()
"""Shared buffers by number. Forked workers inherit this dict, so a number identifies a buffer to them."""


class SharedBuffer:
    """Space for the pixels of a batch, followed by space for the files to decode them from.

    It pickles as its number, so it can only be sent to a process that was forked after its creation.
    """

    def __init__(self, num_pixel_bytes: int, num_file_bytes: int, free: deque[SharedBuffer]) -> None:
        self.number = next(_numbers)
        # Pages take no memory until they are written to, so spare space for larger files costs nothing.
        memory = memoryview(mmap.mmap(-1, num_pixel_bytes + num_file_bytes))
        self._pixels = memory[:num_pixel_bytes]
        self.files = memory[num_pixel_bytes:]
        """The training process writes the batch's files here."""
        self._free = weakref.ref(free)  # weak, or the cycle would wait for the garbage collector
        _shared_buffers[self.number] = self

    def pixels(self, shape: tuple[int, ...], dtype: str = "uint8") -> npt.NDArray[Any]:
        """Return an array of `shape`, to be filled by the worker that received the shared buffer."""
        return np.frombuffer(self._pixels, dtype=dtype, count=math.prod(shape)).reshape(shape)

    def has_space(self, shape: tuple[int, ...], dtype: str) -> bool:
        """Return whether such an array fits."""
        return math.prod(shape) * np.dtype(dtype).itemsize <= len(self._pixels)

    def receive(self, shape: tuple[int, ...], dtype: str = "uint8") -> npt.NDArray[Any]:
        """Return the filled array. Once nothing refers to it, the shared buffer is free again."""
        flat = np.frombuffer(self._pixels, dtype=dtype, count=math.prod(shape))
        weakref.finalize(flat, _give_back, self._free, self).atexit = False
        return flat.reshape(shape)

    def release(self) -> None:
        """Free the shared buffer unused: its batch came in other memory."""
        _give_back(self._free, self)

    def __reduce__(self) -> tuple[Callable[[int], SharedBuffer], tuple[int]]:
        return _inherited, (self.number,)


class SharedBuffers:
    """A pool of `count` shared buffers, made before workers are forked. The training process takes them."""

    def __init__(self, count: int, num_pixel_bytes: int, num_file_bytes: int) -> None:
        self._free: deque[SharedBuffer] = deque()
        self._free.extend(SharedBuffer(num_pixel_bytes, num_file_bytes, self._free) for _ in range(count))
        self._all = list(self._free)

    def take(self) -> SharedBuffer | None:
        """Return an unused shared buffer, or None: the caller then uses other memory."""
        try:
            return self._free.popleft()
        except IndexError:
            return None


def _give_back(free: weakref.ref[deque[SharedBuffer]], shared_buffer: SharedBuffer) -> None:
    if (line := free()) is not None:
        line.append(shared_buffer)


def _inherited(number: int) -> SharedBuffer:
    return _shared_buffers[number]
