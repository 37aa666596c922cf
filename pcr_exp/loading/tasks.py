"""What decoding is asked to do: batches of JPEG bytes, made in the training process as the bytes come in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import PcrExpError
from pcr_exp.loading.echo.held import Samples, Trimmer
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.order import EpochOrder
from pcr_exp.policies.policy import ScanPolicy
from pcr_exp.records.reader import Extension, RecordPrefix, RecordSet


@dataclass(frozen=True, slots=True)
class Task:
    """One batch before decoding; the fields are those of `Batch`."""

    jpegs: list[bytes]
    groups: list[int]
    """Scan group that each sample is read at: a policy may mix them."""
    names: list[str]
    """What to call each sample in an error."""
    labels: npt.NDArray[np.int64]
    epoch: int
    index: int
    num_batches: int
    record_bytes: int
    full_bytes: int
    group: int
    num_repeats: int
    slot: int
    part: int
    num_parts: int


class Request(NamedTuple):
    """A read: the groups after `after`, up to `group`, of a record."""

    record: int
    group: int
    after: int


@dataclass(frozen=True, slots=True)
class Span:
    """From update `first_batch` of epoch `first_epoch` to the end of epoch `num_epochs` - 1."""

    first_epoch: int
    first_batch: int
    num_epochs: int
    end_batch: int | None = None
    """Of every epoch, only the updates before this one (None: all)."""

    def epochs(self) -> Iterator[tuple[int, int]]:
        """(epoch, first update) of every epoch."""
        for epoch in range(self.first_epoch, self.num_epochs):
            yield epoch, self.first_batch if epoch == self.first_epoch else 0


class Tasks:
    """The tasks of a span, in order; iterate once.

    Made for a pool that asks for tasks before it hands over results. When bytes are late it gets None, so
    that it hands over what is decoded meanwhile; only when nothing is being decoded does asking wait for
    storage.
    """

    def __init__(
        self,
        records: RecordSet,
        policy: ScanPolicy,
        order: Callable[[int], EpochOrder],
        span: Span,
        *,
        label: str,
        batch_size: int,
        num_threads: int,
        ahead: int,
        timeout_s: float | None = None,
        repeat_groups: Sequence[int] = (),
        slots: Sequence[int] = (0,),
    ) -> None:
        """`order(epoch)` is asked twice per epoch: by reading, and later by batching.

        `repeat_groups[k - 1]` is the scan group that a read of level k continues to. `slots` take turns in
        the batches of `order`; all of them together are what this process gives to an update.
        """
        self.num_decoding = 0
        """Tasks given out whose batches have not come back; whoever takes a batch counts it down."""
        self.fetcher = Fetcher(
            self._read,
            self._requests(),
            num_threads=num_threads,
            ahead=ahead,
            timeout_s=timeout_s,
            describe=lambda request: records.describe(*request),
        )
        self._records = records
        self._policy = policy
        self._order = order
        self._span = span
        self._label = label
        self.batch_size = batch_size
        self._repeat_groups = repeat_groups
        self._slots = slots

    def __iter__(self) -> Iterator[Task | PcrExpError | None]:
        """Tasks, None where there is none yet, and at the end the error that reading met, if any."""
        self.fetcher.start()
        try:
            for epoch, first_batch in self._span.epochs():
                yield from self._epoch(epoch, first_batch)
        # An error takes its place in line: all batches before it come out first, at any number of workers.
        except PcrExpError as error:
            self.num_decoding += 1
            yield error

    def _requests(self) -> Iterator[Request | None]:
        """Every read; None while the policy has not decided the next one."""
        for epoch, first_batch in self._span.epochs():
            order = self._order(epoch)
            groups: dict[int, int] = {}
            for read in np.flatnonzero(self._needed(order, first_batch)).tolist():
                record, level = int(order.records[read]), int(order.levels[read])
                after = groups[int(order.bases[read])] if level else 0
                if level:
                    # A policy may have chosen more for this record than its repeats ask for.
                    group = max(after, self._repeat_groups[level - 1])
                else:
                    while (chosen := self._policy.group(epoch, record)) is None:
                        yield None
                    group = chosen
                groups[read] = group
                yield Request(record, group, after)

    def _batches(self, order: EpochOrder, first_batch: int) -> range:
        """The batches of `order` that are wanted, from update `first_batch` on."""
        num_parts, whole = len(self._slots), len(order.batches) - 1
        end = whole if self._span.end_batch is None else min(whole, self._span.end_batch * num_parts)
        return range(min(first_batch * num_parts, end), end)

    def _needed(self, order: EpochOrder, first_batch: int) -> npt.NDArray[np.bool_]:
        """[R] whether each read serves a batch that is wanted."""
        wanted = self._batches(order, first_batch)
        first, end = order.batches[wanted.start], order.batches[wanted.stop]
        return (order.last_use >= first) & (order.first_use < end)

    def _read(self, request: Request) -> RecordPrefix | Extension:
        if request.after == 0:
            return self._records.read_prefix(request.record, request.group)
        return self._records.read_extension(request.record, request.after, request.group)

    def _epoch(self, epoch: int, first_batch: int) -> Iterator[Task | None]:
        order = self._order(epoch)
        # In the order of first uses, in which they were asked for.
        to_come = deque(np.flatnonzero(self._needed(order, first_batch)).tolist())
        opened: dict[int, Samples] = {}
        trimmer = Trimmer(order)
        for number in self._batches(order, first_batch):
            first, end = int(order.batches[number]), int(order.batches[number + 1])
            draft = _Draft(group=opened[max(opened)].group if opened else 0)
            num_to_come = len(to_come)
            reads, samples = order.reads[first:end].tolist(), order.samples[first:end].tolist()
            for position, read, sample in zip(range(first, end), reads, samples, strict=True):
                # In the middle of an epoch, first come all that are in use there.
                while to_come and order.first_use[to_come[0]] <= position:
                    while not self.fetcher.want(1) and self.num_decoding > 0:
                        yield None
                    newest = to_come.popleft()
                    self._open(order, opened, newest, *self.fetcher.take(1))
                    draft.group = opened[newest].group
                    if order.first_use[newest] >= first:
                        self._count(order, opened, newest, draft)
                self._add(order, opened, read, sample, draft)
                _let_go(order, opened, read, position)
            self.num_decoding += 1
            yield self._task(order, epoch, number, draft)
            if len(to_come) < num_to_come:
                trimmer.trim(opened, end)

    def _open(
        self, order: EpochOrder, opened: dict[int, Samples], read: int, result: RecordPrefix | Extension
    ) -> None:
        if isinstance(result, Extension):
            prefix = opened[int(order.bases[read])]
            assert isinstance(prefix, RecordPrefix)  # records whose repeats read on stay whole
            result = prefix.extended(result)
        opened[read] = result

    def _count(self, order: EpochOrder, opened: Mapping[int, Samples], read: int, draft: _Draft) -> None:
        """Count the bytes of a read with the batch that is the first to use it."""
        base = int(order.bases[read])
        draft.record_bytes += opened[read].num_bytes - (opened[base].num_bytes if base != read else 0)
        if base == read:
            index = self._records.index
            draft.full_bytes += index.prefix_bytes(int(order.records[read]), index.num_groups)

    def _add(
        self, order: EpochOrder, opened: Mapping[int, Samples], read: int, sample: int, draft: _Draft
    ) -> None:
        prefix = opened[read]
        file = self._records.index.records[order.records[read]].file
        draft.jpegs.append(prefix.encoded(sample))
        draft.groups.append(prefix.group)
        draft.names.append(f"sample {prefix.ids[sample]} (record {file}, scan group {prefix.group})")
        draft.labels.append(prefix.labels[self._label][sample])

    def _task(self, order: EpochOrder, epoch: int, number: int, draft: _Draft) -> Task:
        index, part = divmod(number, len(self._slots))
        return Task(
            jpegs=draft.jpegs,
            groups=draft.groups,
            names=draft.names,
            labels=np.array(draft.labels, dtype=np.int64),
            epoch=epoch,
            index=index,
            num_batches=(len(order.batches) - 1) // len(self._slots),
            record_bytes=draft.record_bytes,
            full_bytes=draft.full_bytes,
            group=draft.group,
            num_repeats=int(
                np.count_nonzero(order.repeats[order.batches[number] : order.batches[number + 1]])
            ),
            slot=self._slots[part],
            part=part,
            num_parts=len(self._slots),
        )


@dataclass(slots=True)
class _Draft:
    """A task that is being filled. Its JPEGs are copies: a record is let go of with its last sample."""

    jpegs: list[bytes] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    record_bytes: int = 0
    full_bytes: int = 0
    group: int = 0
    """Of the read that was opened last, of those in use."""


def _let_go(order: EpochOrder, opened: dict[int, Samples], read: int, position: int) -> None:
    """Forget a read, and those that it continues, after the last position that uses them."""
    while order.last_use[read] == position:
        del opened[read]
        base = int(order.bases[read])
        if base == read:
            return
        read = base
