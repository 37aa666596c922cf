"""A batch: as files that are sent to be decoded, and as the images that training gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pcr_exp.images.codec import Buffer
from pcr_exp.loading.shared_buffers import SharedBuffer

if TYPE_CHECKING:
    from torch import Tensor

    from pcr_exp.records.groups import RecordPrefix


class Files:
    """Image files, each copied once: end to end in a shared buffer while it has room, else on its own.

    Buffers are writable, so that a decoder may change a header where it lies.
    """

    def __init__(self, shared_buffer: SharedBuffer | None = None) -> None:
        self.shared_buffer = shared_buffer
        self._files: list[tuple[int, int] | bytearray] = []
        """Where in the shared buffer (pickled in a tenth of a slice's time), or what."""
        self._end = 0

    def add(self, parts: Sequence[Buffer]) -> None:
        """Copy a file that is given in parts."""
        start, end = self._end, self._end + sum(map(len, parts))
        if self.shared_buffer is None or end > len(self.shared_buffer.files):
            self._files.append(bytearray().join(parts))
            return
        room, at = self.shared_buffer.files, start
        for part in parts:
            room[at : (at := at + len(part))] = part
        self._end = end
        self._files.append((start, end))

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Buffer]:
        for file in self._files:
            if isinstance(file, tuple):
                assert self.shared_buffer is not None
                yield self.shared_buffer.files[slice(*file)]
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
    """The name of each image in an error."""
    num_replaced: int = 0
    """Images that stand in for damaged ones."""
    fields: list[dict[str, bytes]] = field(default_factory=list)
    """The fields of each image, if any were asked for."""

    def add(self, samples: RecordPrefix, i: int, record: str) -> None:
        """Copy the file of sample `i`, since the record that it lies in may be let go of."""
        self.files.add(samples.parts(i))
        self.groups.append(samples.group)
        self.names.append(f"sample {samples.ids[i]} (record {record}, scan group {samples.group})")
        self.num_replaced += i in samples.replaced
        if samples.fields:
            self.fields.append({name: bytes(data) for name, data in samples.beside(i).items()})


@dataclass(slots=True)
class SourcePart:
    """A source's part of a batch of a mixture."""

    num_images: int = 0
    record_bytes: int = 0
    """As the batch's."""


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
    sources: Mapping[str, SourcePart] = field(default_factory=dict)
    """A mixture's images and bytes here, by source."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The images' fields, by name: tensors [B, ...] of masks and arrays, lists of B of others."""

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
        from pcr_exp.loading.fields import pinned

        images, labels = self.images.pin_memory(), self.labels.pin_memory()
        return replace(self, images=images, labels=labels, fields=pinned(self.fields))
