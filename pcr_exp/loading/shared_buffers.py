"""Memory that worker processes share, used over and over.

A batch of 64 images of 224 x 224 has 2,352 pages, which would be cleared, mapped in two processes and handed
over by file descriptor for every batch anew.
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
"""By number. Forked workers inherit it, so that a number is enough to say which shared buffer is meant."""


class SharedBuffer:
    """Room for the pixels of a batch, and behind it for the files that they are decoded from.

    Pickled, it is its number: only a process that was forked after it was made can be sent it.
    """

    def __init__(self, num_pixel_bytes: int, num_file_bytes: int, free: deque[SharedBuffer]) -> None:
        self.number = next(_numbers)
        # Pages that nobody has written to take no memory, so room for files that are larger costs nothing.
        memory = memoryview(mmap.mmap(-1, num_pixel_bytes + num_file_bytes))
        self._pixels = memory[:num_pixel_bytes]
        self.files = memory[num_pixel_bytes:]
        """The training process writes what the batch is to be decoded from."""
        self._free = weakref.ref(free)  # it lies in there: a cycle would wait for the garbage collector
        _shared_buffers[self.number] = self

    def pixels(self, shape: tuple[int, ...], dtype: str = "uint8") -> npt.NDArray[Any]:
        """An array of `shape`, to be written by the worker that was sent the shared buffer."""
        return np.frombuffer(self._pixels, dtype=dtype, count=math.prod(shape)).reshape(shape)

    def has_room(self, shape: tuple[int, ...], dtype: str) -> bool:
        """Whether such an array fits."""
        return math.prod(shape) * np.dtype(dtype).itemsize <= len(self._pixels)

    def receive(self, shape: tuple[int, ...], dtype: str = "uint8") -> npt.NDArray[Any]:
        """What was written. When nothing refers to it any more, the shared buffer may be taken again."""
        flat = np.frombuffer(self._pixels, dtype=dtype, count=math.prod(shape))
        weakref.finalize(flat, _give_back, self._free, self).atexit = False
        return flat.reshape(shape)

    def __reduce__(self) -> tuple[Callable[[int], SharedBuffer], tuple[int]]:
        return _inherited, (self.number,)


class SharedBuffers:
    """`count` shared buffers, made before workers are forked. The training process gives them out."""

    def __init__(self, count: int, num_pixel_bytes: int, num_file_bytes: int) -> None:
        self._free: deque[SharedBuffer] = deque()
        self._free.extend(SharedBuffer(num_pixel_bytes, num_file_bytes, self._free) for _ in range(count))
        self._all = list(self._free)

    def take(self) -> SharedBuffer | None:
        """A shared buffer that nobody uses, or None: whoever asked finds memory elsewhere."""
        try:
            return self._free.popleft()
        except IndexError:
            return None


def _give_back(free: weakref.ref[deque[SharedBuffer]], shared_buffer: SharedBuffer) -> None:
    if (line := free()) is not None:
        line.append(shared_buffer)


def _inherited(number: int) -> SharedBuffer:
    return _shared_buffers[number]
