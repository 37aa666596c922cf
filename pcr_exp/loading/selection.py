"""Some images of a split, in place of all: seen by the loader's order, its reads and its state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import xxhash

from pcr_exp.loading.lanes import Ints, SampleIndices


class Selection:
    """Images by their numbers in the split, in the order of the records."""

    def __init__(self, images: Ints, record_sizes: Sequence[int] | Ints) -> None:
        """`images` [n], rising and each once, are of records of so many samples."""
        ends = np.cumsum(record_sizes, dtype=np.int64)
        records = np.searchsorted(ends, images, side="right")
        self.images = images
        self.records, counts = np.unique(records, return_counts=True)
        """[K] the records that hold one of them, rising."""
        self.sizes: list[int] = counts.tolist()
        """[K] and how many each holds."""
        self._starts = np.cumsum(counts) - counts
        self._samples = images - (ends - np.asarray(record_sizes))[records]

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the images' numbers."""
        return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(self.images, dtype="<i8").tobytes())

    @property
    def identity(self) -> dict[str, Any]:
        """The part of a state that must be equal to go on from it."""
        return {"selection": self.fingerprint}

    def locate(self, laid_out: SampleIndices) -> SampleIndices:
        """Where samples lie that were laid out as if there were K records, of `sizes` samples each."""
        numbers = self._starts[laid_out.records] + laid_out.samples
        return SampleIndices(self.records[laid_out.records], self._samples[numbers])
