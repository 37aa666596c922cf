"""What training gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    """Number of the update in its epoch that this batch is for."""
    num_batches: int
    """Updates in this epoch."""
    record_bytes: int
    """Bytes of the reads (record prefixes, and what continues them) whose first use of the epoch is here."""
    full_bytes: int
    """Bytes that the records have in all their scan groups whose first use of the epoch is here."""
    group: int
    """Scan group of the record that was read last, of those in use."""
    num_repeats: int = 0
    """Images whose sample the epoch used before."""
    num_replaced: int = 0
    """Images that stand in for damaged ones (`loader.on_corrupt=replace`)."""
    decode_s: float = 0.0
    """Seconds that decoding and augmenting took, in whichever process; 0 if it is a repeat as a whole."""
    slot: int = 0
    """Which batch of the global batch this is."""
    part: int = 0
    """Which it is of those that this process gives to the update."""
    num_parts: int = 1
    """How many those are."""

    @property
    def completes_update(self) -> bool:
        """Whether this process has nothing more for the update."""
        return self.part + 1 == self.num_parts

    @property
    def num_fresh(self) -> int:
        """Images whose sample the epoch uses for the first time."""
        return len(self.labels) - self.num_repeats

    def pin_memory(self) -> Batch:
        """A copy in page-locked memory, from which copies to a GPU do not block."""
        return replace(self, images=self.images.pin_memory(), labels=self.labels.pin_memory())
