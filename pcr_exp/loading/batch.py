"""A batch: its files before decoding, and its images as training receives them."""

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
    """Image files, each copied once: end to end into a shared buffer while it has room, else separately.

    Buffers are writable, so that a decoder may modify a header in place.
    """

    def __init__(self, shared_buffer: SharedBuffer | None = None) -> None:
        self.shared_buffer = shared_buffer
        self._files: list[tuple[int, int] | bytearray] = []
        """(start, end) in the shared buffer (pickles in a tenth of a slice's time), or the file itself."""
        self._end = 0

    def add(self, parts: Sequence[Buffer]) -> None:
        """Copy a file given in parts."""
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
    """The images of a batch before decoding, as sent to a worker."""

    files: Files
    epoch: int
    slot: int
    index: int
    """Number of the update in its epoch. With `epoch` and `slot`, it determines the augmentation."""
    groups: list[int] = field(default_factory=list)
    """Scan group at which each image is read; a policy may mix groups."""
    names: list[str] = field(default_factory=list)
    """Name of each image for error messages."""
    replaced: list[int] = field(default_factory=list)
    """Positions of the images that replace damaged ones."""
    fields: list[dict[str, bytes]] = field(default_factory=list)
    """The fields of each image, if any were requested."""

    def add(self, samples: RecordPrefix, i: int, record: str) -> None:
        """Copy the file of sample `i`, because its record may be released."""
        self.files.add(samples.parts(i))
        self.groups.append(samples.group)
        if i in samples.replaced:
            self.replaced.append(len(self.names))
        self.names.append(f"sample {samples.ids[i]} (record {record}, scan group {samples.group})")
        if samples.fields:
            self.fields.append({name: bytes(data) for name, data in samples.beside(i).items()})


@dataclass(slots=True)
class SourcePart:
    """The part of a mixture's batch that comes from one source."""

    num_images: int = 0
    record_bytes: int = 0
    """As in `Batch`, for this source."""


@dataclass(frozen=True, slots=True)
class Batch:
    """B images and their labels. The last batch of an epoch may be shorter than the others."""

    images: Tensor
    """uint8 [B, H, W, 3], contiguous, RGB."""
    labels: Tensor
    """int64 [B]."""
    epoch: int
    index: int
    """Number in its epoch of the update that this batch belongs to."""
    num_batches: int
    """Updates in this epoch."""
    record_bytes: int
    """Bytes of the reads (record prefixes and continuations) that the epoch first uses in this batch."""
    full_bytes: int
    """Bytes, at all scan groups, of the records that the epoch first uses in this batch."""
    group: int
    """Scan group of the most recently read record in use."""
    num_repeats: int = 0
    """Images whose sample the epoch has used before."""
    replaced: Sequence[int] = ()
    """Positions in the batch of images that replace damaged ones (`loader.on_corrupt=replace`)."""
    decode_s: float = 0.0
    """Seconds of decoding and augmenting, in whichever process; 0 if the whole batch is a repeat."""
    slot: int = 0
    """Index of this micro-batch in the global batch."""
    part: int = 0
    """Index of this micro-batch among those that this process contributes to the update."""
    num_parts: int = 1
    """Number of micro-batches that this process contributes to the update."""
    sources: Mapping[str, SourcePart] = field(default_factory=dict)
    """Images and bytes of this batch by source, for a mixture."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The images' fields by name: tensors [B, ...] for masks and arrays, lists of B for others."""

    @property
    def completes_update(self) -> bool:
        """Whether this is the last micro-batch that this process contributes to the update."""
        return self.part + 1 == self.num_parts

    @property
    def num_fresh(self) -> int:
        """Images whose sample the epoch uses for the first time."""
        return len(self.labels) - self.num_repeats

    @property
    def num_replaced(self) -> int:
        """Images that replace damaged ones."""
        return len(self.replaced)

    def pin_memory(self) -> Batch:
        """Return a copy in page-locked memory, so that copies to a GPU do not block."""
        from pcr_exp.loading.fields import pinned

        images, labels = self.images.pin_memory(), self.labels.pin_memory()
        return replace(self, images=images, labels=labels, fields=pinned(self.fields))
