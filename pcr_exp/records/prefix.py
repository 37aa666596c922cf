"""What a read brings: all samples of a record up to a scan group, and the groups that continue them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pcr_exp.images.codec import Buffer, ImageCodec


class Stretch(NamedTuple):
    """Bytes of one read, and for every group in them the N + 1 offsets in them that bound its pieces."""

    data: bytes
    bounds: list[list[int]]


@dataclass(frozen=True, slots=True)
class Extension:
    """The groups `after` + 1 to `group` of a record, which continue a prefix of `after` groups."""

    after: int
    group: int
    num_bytes: int
    """Bytes that were read for it."""
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class RecordPrefix:
    """All N samples of a record, at the fidelity of one scan group. `labels` are int64 of shape [N]."""

    ids: list[str]
    labels: dict[str, npt.NDArray[np.int64]]
    group: int
    num_bytes: int
    """Bytes that were read for it."""
    _stretches: tuple[Stretch, ...]
    _codec: ImageCodec
    replaced: Mapping[int, int] = field(default_factory=dict)
    """By number, samples that are damaged, and which sample of the record stands in for each."""

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self, i: int, group: int | None = None) -> Sequence[Buffer]:
        """Buffers that, laid end to end, are sample i as a file: views of what was read, nothing is copied.

        With `group`, only the pieces up to that one: what a shorter prefix of the record would have given.
        """
        if not 0 <= i < len(self.ids):
            raise IndexError(f"sample {i} of a record of {len(self.ids)}")
        i = self.replaced.get(i, i)
        views = [
            (memoryview(stretch.data), bounds) for stretch in self._stretches for bounds in stretch.bounds
        ]
        return self._codec.join([view[bounds[i] : bounds[i + 1]] for view, bounds in views[:group]])

    def encoded(self, i: int, group: int | None = None) -> bytes:
        """Sample i as a file, of the groups read or of fewer; a baseline as it was."""
        return b"".join(self.parts(i, group))

    def bounds(self, group: int) -> npt.NDArray[np.int64]:
        """[N + 1] offsets in the file that bound the pieces of a group that was read from its start on."""
        return np.array(self._stretches[0].bounds[group - 1], dtype=np.int64)

    def piece(self, i: int, group: int) -> memoryview:
        """What one such group adds to sample i."""
        first, bounds = self._stretches[0].data, self._stretches[0].bounds[group - 1]
        return memoryview(first)[bounds[i] : bounds[i + 1]]

    def extended(self, more: Extension) -> RecordPrefix:
        """The samples at the fidelity of more groups. Shares memory with this prefix, which stays as it is.

        Raises:
            ValueError: `more` does not begin where this prefix ends.
        """
        if more.after != self.group:
            raise ValueError(
                f"groups from {more.after + 1} on do not continue a prefix of {self.group} groups"
            )
        return replace(
            self,
            group=more.group,
            num_bytes=self.num_bytes + more.num_bytes,
            _stretches=(*self._stretches, more.stretch),
        )
