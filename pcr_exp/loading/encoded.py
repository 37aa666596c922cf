"""The files of a batch's images, as decoding gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pcr_exp.images.codec import Buffer
from pcr_exp.loading.slabs import Slab


class Files:
    """Image files, each copied once: laid end to end in a slab as far as it has room, else on its own.

    Buffers are writable, so that a decoder may change a header where it lies.
    """

    def __init__(self, slab: Slab | None = None) -> None:
        self.slab = slab
        self._files: list[slice | bytearray] = []
        self._end = 0

    def add(self, parts: Sequence[Buffer]) -> None:
        """Copy a file that is given in parts."""
        start, end = self._end, self._end + sum(map(len, parts))
        if self.slab is None or end > len(self.slab.files):
            self._files.append(bytearray().join(parts))
            return
        for part in parts:
            self.slab.files[self._end : self._end + len(part)] = part
            self._end += len(part)
        self._files.append(slice(start, end))

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Buffer]:
        for file in self._files:
            if isinstance(file, slice):
                assert self.slab is not None
                yield self.slab.files[file]
            else:
                yield file


@dataclass(slots=True)
class EncodedImages:
    """The images of a batch before decoding: what a worker is sent."""

    files: Files
    epoch: int
    slot: int
    index: int
    """Number of the update in its epoch: with epoch and slot it says how images are augmented."""
    groups: list[int] = field(default_factory=list)
    """Scan group that each image is read at: a policy may mix them."""
    names: list[str] = field(default_factory=list)
    """What to call each image in an error."""
    num_replaced: int = 0
    """Images that stand in for damaged ones."""
