"""The validation images of a run, decoded once where they fit in memory."""

from __future__ import annotations

from collections.abc import Iterator

from pcr_exp.loading.loader import Batch, RecordLoader

CACHE_BYTES = 2**30
"""Decoded images up to this size are kept between evaluations: the same pixels need no second decoding."""


class ValidationBatches:
    """All validation batches, as often as they are asked for."""

    def __init__(self, loader: RecordLoader, image_size: int, cache_bytes: int = CACHE_BYTES) -> None:
        """Keep the images if num_samples x image_size^2 x 3 bytes fit in `cache_bytes`."""
        self._loader = loader
        self._cached: list[Batch] | None = None
        self._fits = loader.num_samples * image_size**2 * 3 <= cache_bytes

    def __iter__(self) -> Iterator[Batch]:
        if self._cached is not None:
            return iter(self._cached)
        stream = self._loader.batches(0, 0, 1)
        if not self._fits:
            return stream
        self._cached = list(stream)
        return iter(self._cached)
