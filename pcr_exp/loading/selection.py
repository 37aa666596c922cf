"""A subset of a split's images, used by the loader's order, reads and state. No side effects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import xxhash

from pcr_exp.loading.lanes import Ints, SampleIndices


class Selection:
    """Selected images, by number in the split and in record order."""

    def __init__(self, images: Ints, record_sizes: Sequence[int] | Ints) -> None:
        """`images` [n] is ascending, without duplicates; `record_sizes` are the samples in each record."""
        ends = np.cumsum(record_sizes, dtype=np.int64)
        records = np.searchsorted(ends, images, side="right")
        self.images = images
        self.records, counts = np.unique(records, return_counts=True)
        """[K] records that hold a selected image, ascending."""
        self.sizes: list[int] = counts.tolist()
        """[K] number of selected images in each."""
        self._starts = np.cumsum(counts) - counts
        self._samples = images - (ends - np.asarray(record_sizes))[records]

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the image numbers."""
        return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(self.images, dtype="<i8").tobytes())

    @property
    def identity(self) -> dict[str, Any]:
        """The part of a state that must match to resume from it."""
        return {"selection": self.fingerprint}

    def locate(self, laid_out: SampleIndices) -> SampleIndices:
        """Map samples laid out over K records of `sizes` samples to their actual records and numbers."""
        numbers = self._starts[laid_out.records] + laid_out.samples
        return SampleIndices(self.records[laid_out.records], self._samples[numbers])
