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
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

_numbers = itertools.count()
_open: weakref.WeakValueDictionary[int, Slabs] = weakref.WeakValueDictionary()
"""By number. Forked workers inherit it, so that a number is enough to say which slabs are meant."""


class Slabs:
    """`count` places of `num_bytes`, made before workers are forked. The training process gives them out."""

    def __init__(self, count: int, num_bytes: int) -> None:
        self.number = next(_numbers)
        self.num_bytes = num_bytes
        self._maps = [mmap.mmap(-1, num_bytes) for _ in range(count)]
        self._free = deque(range(count))
        _open[self.number] = self

    def take(self) -> int | None:
        """A slab that nobody uses, or None: whoever asked finds memory elsewhere."""
        try:
            return self._free.popleft()
        except IndexError:
            return None

    def put(self, slab: int, pieces: Sequence[bytes]) -> None:
        """Lay bytes end to end."""
        place, end = self._maps[slab], 0
        for piece in pieces:
            place[end : end + len(piece)] = piece
            end += len(piece)

    def pieces(self, slab: int, lengths: Sequence[int]) -> list[bytes]:
        """Copies of what was put."""
        place, ends = self._maps[slab], itertools.accumulate(lengths)
        return [place[end - length : end] for length, end in zip(lengths, ends, strict=True)]

    def pixels(self, slab: int, shape: tuple[int, ...]) -> Pixels:
        """uint8 of `shape`, to be written by the worker that was given the slab."""
        return np.frombuffer(self._maps[slab], dtype=np.uint8, count=math.prod(shape)).reshape(shape)

    def receive(self, slab: int, shape: tuple[int, ...]) -> Pixels:
        """What was written. When nothing refers to it any more, the slab may be taken again."""
        flat = np.frombuffer(self._maps[slab], dtype=np.uint8, count=math.prod(shape))
        weakref.finalize(flat, self._free.append, slab).atexit = False
        return flat.reshape(shape)


def receive_pixels(number: int, slab: int, shape: tuple[int, ...]) -> Pixels:
    """As `Slabs.receive`, of the slabs of that number in this process."""
    return _open[number].receive(slab, shape)
