"""What decoding is asked to do: batches of image files, made in the training process as the bytes come in."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import LoaderError, PcrExpError
from pcr_exp.images.codec import Buffer
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.order import Order, Span
from pcr_exp.loading.reads import Request, Samples, read_with_replacements
from pcr_exp.loading.shared_buffers import Slab
from pcr_exp.policies.policy import ScanPolicy
from pcr_exp.records.groups import Extension, RecordPrefix
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.lazy import torch

_BEYOND_ALL = 2**62
"""Later than any position of an epoch."""


class Files:
    """Image files, each copied once: laid end to end in a slab as far as it has room, else on its own.

    Buffers are writable, so that a decoder may change a header where it lies.
    """

    def __init__(self, slab: Slab | None = None) -> None:
        self.slab = slab
        self._files: list[tuple[int, int] | bytearray] = []
        """Where in the slab (pickled in a tenth of a slice's time), or what."""
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
        self._files.append((start, end))

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Buffer]:
        for file in self._files:
            if isinstance(file, tuple):
                assert self.slab is not None
                yield self.slab.files[slice(*file)]
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


class Task(NamedTuple):
    """A batch before decoding: `batch` lacks only its images, which are to come from `images`."""

    batch: Batch
    images: EncodedImages


class Reads:
    """An epoch's reads, each of which brings a prefix of a record, and those that are in use."""

    def __init__(self, records: RecordSet, order: Order) -> None:
        self._records = records
        self._order = order
        self._in_use: dict[int, Samples] = {}

    def requests(self, reads: Iterable[int], choose: Callable[[int], int | None]) -> Iterator[Request | None]:
        """What to read for each of `reads`; `choose(record)` gives the scan group, None if not known."""
        for read in reads:
            record = int(self._order.records[read])
            while (group := choose(record)) is None:
                yield None
            yield Request(record, group)

    def open(self, read: int, result: RecordPrefix | Extension) -> None:
        """Begin to use what a request has brought."""
        assert isinstance(result, RecordPrefix)
        self._in_use[read] = result

    def samples(self, read: int) -> Samples:
        """What a read that is in use holds."""
        return self._in_use[read]

    def num_bytes(self, read: int) -> tuple[int, int]:
        """(bytes that were read, bytes that all groups of the record would have been)."""
        index = self._records.index
        record = int(self._order.records[read])
        return self._in_use[read].num_bytes, index.prefix_bytes(record, index.num_groups)

    def newest_group(self) -> int:
        """Scan group of the read that was opened last, of those in use; 0 if there is none."""
        return self._in_use[max(self._in_use)].group if self._in_use else 0

    def let_go(self, read: int, position: int) -> None:
        """Forget a read after the last position that uses it."""
        if self._order.last_use[read] == position:
            del self._in_use[read]

    def trim(self, position: int) -> None:
        """Make what is in use smaller, if it can be: only positions from `position` on are to come."""


class Tasks:
    """The tasks of a span, in order; iterate once.

    Made for a pool that asks for tasks before it hands over results. When bytes are late it gets None, so
    that it hands over what is decoded meanwhile; only where `may_wait` does asking wait for storage.
    """

    def __init__(
        self,
        records: RecordSet,
        policy: ScanPolicy,
        order: Callable[[int], Order],
        span: Span,
        *,
        label: str,
        batch_size: int,
        num_threads: int,
        ahead: int,
        timeout_s: float | None = None,
        slots: Sequence[int] = (0,),
        reads: Callable[[RecordSet, Order], Reads] = Reads,
        replacing: int | None = None,
        at_once: int = 1,
    ) -> None:
        """`order(epoch)` is asked twice per epoch: by reading, and later by batching.

        `slots` take turns in the batches of `order`; all of them together are what this process gives to an
        update. `reads` makes the reads of an order. With `replacing`, a seed, damaged images are replaced.
        A thread reads up to `at_once` prefixes by one call.
        """
        self.may_wait = True
        """Whether there is nothing to hand over meanwhile."""
        self.take_slab: Callable[[], Slab | None] = lambda: None
        """Gives memory for a batch that is begun."""
        self.fetcher: Fetcher[Request, RecordPrefix | Extension] = Fetcher(
            self._read,
            self._requests(),
            num_threads=num_threads,
            ahead=ahead,
            timeout_s=timeout_s,
            describe=lambda request: records.describe(request.record, request.group, request.after),
            read_many=self._read_many,
            at_once=at_once,
        )
        self._records = records
        self._policy = policy
        self._order = order
        self._span = span
        self._label = label
        self.batch_size = batch_size
        self._slots = slots
        self._reads = reads
        self._replacing = replacing

    def __iter__(self) -> Iterator[Task | PcrExpError | None]:
        """Tasks, None where there is none yet, and at the end the error that reading met, if any."""
        self.fetcher.start()
        try:
            for epoch, first_batch in self._span.epochs():
                yield from self._epoch(epoch, first_batch)
        # An error takes its place in line: all batches before it come out first, at any number of workers.
        except PcrExpError as error:
            yield error

    def _requests(self) -> Iterator[Request | None]:
        """Every read; None while the policy has not decided the next one."""
        for epoch, first_batch in self._span.epochs():
            order = self._order(epoch)
            needed = np.flatnonzero(self._needed(order, first_batch)).tolist()
            choose = functools.partial(self._policy.group, epoch)
            for request in self._reads(self._records, order).requests(needed, choose):
                yield None if request is None else request._replace(epoch=epoch)

    def _read(self, request: Request) -> RecordPrefix | Extension:
        if request.after == 0:
            if self._replacing is not None:
                return read_with_replacements(
                    self._records, request.record, request.group, self._replacing, request.epoch
                )
            return self._records.read_prefix(request.record, request.group)
        return self._records.read_extension(request.record, request.after, request.group)

    def _read_many(self, requests: list[Request]) -> list[RecordPrefix]:
        if any(request.after for request in requests):
            raise LoaderError("reads that continue others are done one by one")
        return self._records.read_prefixes([(request.record, request.group) for request in requests])

    def _batches(self, order: Order, first_batch: int) -> range:
        """The batches of `order` that are wanted, from update `first_batch` on."""
        num_parts, whole = len(self._slots), order.num_batches
        end = whole if self._span.end_batch is None else min(whole, self._span.end_batch * num_parts)
        return range(min(first_batch * num_parts, end), end)

    def _needed(self, order: Order, first_batch: int) -> npt.NDArray[np.bool_]:
        """[R] whether each read serves a batch that is wanted."""
        wanted = self._batches(order, first_batch)
        first, end = order.batch_start(wanted.start), order.batch_start(wanted.stop)
        return (order.last_use >= first) & (order.first_use < end)

    def _epoch(self, epoch: int, first_batch: int) -> Iterator[Task | None]:
        order = self._order(epoch)
        reads = self._reads(self._records, order)
        # In the order of first uses, in which they were asked for.
        to_come = deque(np.flatnonzero(self._needed(order, first_batch)).tolist())
        for number in self._batches(order, first_batch):
            first, end = order.batch_start(number), order.batch_start(number + 1)
            uses = order.uses(first, end)
            index, part = divmod(number, len(self._slots))
            images = EncodedImages(Files(self.take_slab()), epoch, self._slots[part], index)
            labels, group, record_bytes, full_bytes = [], reads.newest_group(), 0, 0
            num_to_come = len(to_come)
            next_first = _first_use(order, to_come)
            for position, read, sample in zip(
                range(first, end), uses[0].tolist(), uses[1].tolist(), strict=True
            ):
                # In the middle of an epoch, first come all that are in use there.
                while next_first <= position:
                    while not self.fetcher.want(1) and not self.may_wait:
                        yield None
                    newest = to_come.popleft()
                    next_first = _first_use(order, to_come)
                    reads.open(newest, *self.fetcher.take(1))
                    group = reads.samples(newest).group
                    if order.first_use[newest] >= first:
                        num_read, num_full = reads.num_bytes(newest)
                        record_bytes += num_read
                        full_bytes += num_full
                labels.append(self._add(order, reads, read, sample, images))
                reads.let_go(read, position)
            batch = Batch(
                images=torch.empty(0, dtype=torch.uint8),
                labels=torch.tensor(labels, dtype=torch.int64),
                epoch=epoch,
                index=index,
                num_batches=order.num_batches // len(self._slots),
                record_bytes=record_bytes,
                full_bytes=full_bytes,
                group=group,
                num_repeats=int(np.count_nonzero(uses[2])),
                slot=self._slots[part],
                part=part,
                num_parts=len(self._slots),
                num_replaced=images.num_replaced,
            )
            yield Task(batch, images)
            if len(to_come) < num_to_come:
                reads.trim(end)

    def _add(self, order: Order, reads: Reads, read: int, sample: int, images: EncodedImages) -> int:
        """Copy a sample's file, since its record may be let go of; the sample's label."""
        samples = reads.samples(read)
        record = self._records.index.records[order.records[read]].file
        images.files.add(samples.parts(sample))
        images.groups.append(samples.group)
        images.num_replaced += sample in samples.replaced
        images.names.append(f"sample {samples.ids[sample]} (record {record}, scan group {samples.group})")
        return int(samples.labels[self._label][sample])


def _first_use(order: Order, to_come: Sequence[int]) -> int:
    """The first position that uses the read which comes next; beyond all positions if none does."""
    return int(order.first_use[to_come[0]]) if to_come else _BEYOND_ALL
