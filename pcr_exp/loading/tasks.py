"""What decoding is asked to do: batches of JPEG bytes, made in the training process as the bytes come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import PcrExpError
from pcr_exp.loading.echo.held import Samples, Trimmer
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.order import EpochOrder
from pcr_exp.loading.policy import ScanPolicy
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


class Request(NamedTuple):
    """A read: the groups after `after`, up to `group`, of a record."""

    record: int
    group: int
    after: int


@dataclass(frozen=True, slots=True)
class Span:
    """From batch `first_batch` of epoch `first_epoch` to the end of epoch `num_epochs` - 1."""

    first_epoch: int
    first_batch: int
    num_epochs: int
    end_batch: int | None = None
    """Of every epoch, only the batches before this one (None: all)."""

    def epochs(self) -> Iterator[tuple[int, int]]:
        """(epoch, first batch) of every epoch."""
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
    ) -> None:
        """`order(epoch)` is asked twice per epoch: by reading, and later by batching.

        `repeat_groups[k - 1]` is the scan group that a read of level k continues to.
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

    def _end(self, order: EpochOrder) -> int:
        """The position that ends what is wanted of an epoch."""
        end_batch = self._span.end_batch
        whole = len(order.samples)
        return whole if end_batch is None else min(whole, end_batch * self.batch_size)

    def _needed(self, order: EpochOrder, first_batch: int) -> npt.NDArray[np.bool_]:
        """[R] whether each read serves a batch that is wanted."""
        return (order.last_use >= first_batch * self.batch_size) & (order.first_use < self._end(order))

    def _read(self, request: Request) -> RecordPrefix | Extension:
        if request.after == 0:
            return self._records.read_prefix(request.record, request.group)
        return self._records.read_extension(request.record, request.after, request.group)

    def _epoch(self, epoch: int, first_batch: int) -> Iterator[Task | None]:
        order = self._order(epoch)
        num_samples = self._end(order)
        needed = self._needed(order, first_batch)
        opened: dict[int, Samples] = {}
        trimmer = Trimmer(order)
        window = 0
        for first in range(first_batch * self.batch_size, num_samples, self.batch_size):
            end = min(first + self.batch_size, num_samples)
            window_before = window
            while window + 1 < len(order.window_samples) and order.window_samples[window] < end:
                reads = np.arange(order.window_reads[window], order.window_reads[window + 1])
                reads = reads[needed[reads]]
                while not self.fetcher.want(len(reads)) and self.num_decoding > 0:
                    yield None
                for read, result in zip(reads.tolist(), self.fetcher.take(len(reads)), strict=True):
                    opened[read] = _continued(opened, int(order.bases[read]), result)
                window += 1
            self.num_decoding += 1
            yield self._task(order, opened, epoch, first, end)
            opened = {read: samples for read, samples in opened.items() if order.last_use[read] >= end}
            if window > window_before:
                trimmer.trim(opened, window - 1, end)

    def _task(self, order: EpochOrder, opened: dict[int, Samples], epoch: int, first: int, end: int) -> Task:
        reads, samples = order.reads[first:end].tolist(), order.samples[first:end].tolist()
        pairs = [(opened[read], sample) for read, sample in zip(reads, samples, strict=True)]
        files = [self._records.index.records[order.records[read]].file for read in reads]
        index = self._records.index
        first_opened = [read for read in set(reads) if order.first_use[read] >= first]
        return Task(
            jpegs=[prefix.jpeg(sample) for prefix, sample in pairs],
            groups=[prefix.group for prefix, _ in pairs],
            names=[
                f"sample {prefix.ids[sample]} (record {file}, scan group {prefix.group})"
                for (prefix, sample), file in zip(pairs, files, strict=True)
            ],
            labels=np.array([prefix.labels[self._label][sample] for prefix, sample in pairs], dtype=np.int64),
            epoch=epoch,
            index=first // self.batch_size,
            num_batches=-(-len(order.samples) // self.batch_size),
            record_bytes=sum(_bytes_read(order, opened, read) for read in first_opened),
            full_bytes=sum(
                index.prefix_bytes(int(order.records[read]), index.num_groups)
                for read in first_opened
                if order.levels[read] == 0
            ),
            group=opened[max(reads)].group,
            num_repeats=int(np.count_nonzero(order.repeats[first:end])),
        )


def _continued(opened: Mapping[int, Samples], base: int, result: RecordPrefix | Extension) -> RecordPrefix:
    if not isinstance(result, Extension):
        return result
    prefix = opened[base]
    assert isinstance(prefix, RecordPrefix)  # records whose repeats read on stay whole
    return prefix.extended(result)


def _bytes_read(order: EpochOrder, opened: Mapping[int, Samples], read: int) -> int:
    base = int(order.bases[read])
    return opened[read].num_bytes - (opened[base].num_bytes if base != read else 0)
