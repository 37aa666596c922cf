"""What training gets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """B images and their labels. The last batch of an epoch may be shorter than the others."""

    images: Tensor
    """uint8 [B, H, W, 3], contiguous, RGB."""
    labels: Tensor
    """int64 [B]."""
    epoch: int
    index: int
    """Of this batch in its epoch."""
    num_batches: int
    """In this epoch."""
    record_bytes: int
    """Bytes of the record prefixes whose first sample of the epoch lies in this batch."""
    full_bytes: int
    """Bytes that these records have in all their scan groups."""
    group: int
    """Scan group of the record, among this batch's, that was read last."""

    def pin_memory(self) -> Batch:
        """A copy in page-locked memory, from which copies to a GPU do not block."""
        return replace(self, images=self.images.pin_memory(), labels=self.labels.pin_memory())
