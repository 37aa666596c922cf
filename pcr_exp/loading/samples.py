"""What is asked of storage, and what of a record is then in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pcr_exp.images.codec import Buffer


class Request(NamedTuple):
    """A read: the groups after `after`, up to `group`, of a record."""

    record: int
    group: int
    after: int = 0
    epoch: int = 0


class Samples(Protocol):
    """Samples of a record that are in memory: a prefix of it, or a few of its samples."""

    @property
    def ids(self) -> list[str]:
        """All samples of the record, also where only a few are in memory."""
        ...

    @property
    def labels(self) -> dict[str, npt.NDArray[np.int64]]:
        """By name, int64 [N]."""
        ...

    @property
    def group(self) -> int:
        """Scan group that was read."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes that were read for it."""
        ...

    @property
    def replaced(self) -> Mapping[int, int]:
        """By number, samples that are damaged, and which sample of the record stands in for each."""
        ...

    def __len__(self) -> int: ...

    def parts(self, i: int) -> Sequence[Buffer]:
        """Buffers that, laid end to end, are sample i as a file."""
        ...
