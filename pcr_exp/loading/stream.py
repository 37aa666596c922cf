"""One continuous run of batches. Owns the threads, processes and shared memory, and runs the main loop.

The path of an image:

    plan -> fetch (threads) -> reads -> encoded images (this process) -> decode, augment (workers) -> batch
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from functools import partial
from operator import add

import torch

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.loading.batch import Batch, EncodedImages, Files, SourcePart
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.fields import as_tensors
from pcr_exp.loading.order import Order, Request
from pcr_exp.loading.plan import BatchPlan, Plan
from pcr_exp.loading.read_ahead import Reading
from pcr_exp.loading.reads import Reads, read_many, read_one
from pcr_exp.loading.shared_buffers import SharedBuffer, SharedBuffers
from pcr_exp.loading.workers import (
    START_METHOD,
    Decoded,
    Failure,
    ImagesDecoder,
    InlinePool,
    Pool,
    WorkerPool,
)
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.groups import Extension, RecordPrefix
from pcr_exp.records.reader import RecordSet


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Statistics of a loader since its creation."""

    read_s: float = 0.0
    """Seconds in which at least one read was in flight."""
    decode_s: float = 0.0
    """Seconds of decoding and augmenting, summed over processes."""
    num_decoded: int = 0
    """Images decoded."""

    def __add__(self, other: LoaderStats) -> LoaderStats:
        return LoaderStats(*map(add, astuple(self), astuple(other)))


@dataclass(slots=True)
class _Task:
    """A batch in progress: its files are collected, then decoded."""

    plan: BatchPlan
    images: EncodedImages
    group: int
    """Scan group of the most recently opened read in use."""
    num_opened: int = 0
    """Reads of the plan that were opened."""
    labels: list[int] = field(default_factory=list)
    record_bytes: int = 0
    full_bytes: int = 0
    sources: dict[str, SourcePart] = field(default_factory=dict)

    def batch(self, result: Decoded) -> Batch:
        """Return the batch for training, given the decoded images."""
        pixels, shared_buffer, plan = result.pixels, self.images.files.shared_buffer, self.plan
        if pixels is None:
            assert shared_buffer is not None
            pixels = shared_buffer.receive(result.shape, result.dtype)
        elif shared_buffer is not None:
            shared_buffer.release()
        return Batch(
            images=torch.from_numpy(pixels),
            labels=torch.tensor(self.labels, dtype=torch.int64),
            epoch=plan.epoch,
            index=plan.index,
            num_batches=plan.num_updates,
            record_bytes=self.record_bytes,
            full_bytes=self.full_bytes,
            group=self.group,
            num_repeats=plan.num_repeats,
            replaced=self.images.replaced,
            decode_s=result.decode_s,
            slot=plan.slot,
            part=plan.part,
            num_parts=plan.num_parts,
            sources=self.sources,
            fields=as_tensors(result.fields or {}),
        )


class BatchStream:
    """Iterator over batches. Reads nothing before the first `next`; `close` ends all that was started."""

    def __init__(
        self,
        plan: Plan,
        records: RecordSet,
        decoder: ImagesDecoder,
        reading: Reading,
        config: LoaderConfig,
        *,
        label: str,
        batch_size: int,
        open_reads: Callable[[Order], Reads] = Reads,
        fields: RecordFields | None = None,
        replacing: int | None = None,
    ) -> None:
        """`open_reads` creates an epoch's reads. With `replacing`, a seed, damaged images are replaced.

        `fields` are read with every record.
        """
        self._records = records
        self._decoder = decoder
        self._config = config
        self._label = label
        self._batch_size = batch_size
        self._open_reads = open_reads
        self._planned = plan.batches()
        self._fetcher: Fetcher[Request, RecordPrefix | Extension] = Fetcher(
            partial(read_one, records, fields=fields, replacing=replacing),
            plan.requests(),
            num_threads=reading.num_threads,
            ahead=reading.ahead,
            timeout_s=config.timeout_s,
            describe=lambda request: records.describe(request.record, request.group, request.after),
            read_many=partial(read_many, records) if fields is None else None,
            at_once=reading.per_call,
        )
        self._pool: Pool | None = None
        self._take_buffer: Callable[[], SharedBuffer | None] = lambda: None
        self._pinner: ThreadPoolExecutor | None = None
        self._epoch: int | None = None
        self._reads: Reads
        """The reads of `_epoch` that are in use."""
        self._begun: _Task | None = None
        """The batch whose files are being collected."""
        self._submitted: deque[_Task | PcrExpError] = deque()
        """Batches being decoded, followed by the error that ends the stream, if any."""
        self._pinned: deque[Future[Batch]] = deque()
        """Decoded batches that are being copied to page-locked memory."""
        self._is_planned = True
        """Whether the plan may have more batches to fill."""
        self._closed = False
        self._decode_s = 0.0
        self._num_decoded = 0

    @property
    def stats(self) -> LoaderStats:
        """Statistics of this stream so far."""
        return LoaderStats(self._fetcher.busy_s, self._decode_s, self._num_decoded)

    def __iter__(self) -> BatchStream:
        return self

    def __next__(self) -> Batch:
        """Return the next batch, waiting for storage and decoding.

        Raises:
            RecordError, StorageError: reading or decoding failed; all earlier batches have been returned.
            LoaderError: a worker process died; nothing arrived within `loader.timeout_s`; or the stream is
                paused and its read-ahead is used up.
        """
        if self._closed:
            raise StopIteration
        try:
            pool = self._pool or self._start()
            self._submit(pool, may_wait=not (self._submitted or self._pinned))
            batch = self._next_decoded(pool)
            if self._config.num_workers > 0:
                self._submit(pool, may_wait=False)  # decoded while the trainer works
        except BaseException:
            self.close()
            raise
        self._decode_s += batch.decode_s
        self._num_decoded += len(batch.labels)
        return batch

    def _start(self) -> Pool:
        config, decoder = self._config, self._decoder
        if config.num_workers == 0:
            self._pool = InlinePool(decoder)
        else:
            if START_METHOD == "fork":
                # One for every batch that may be in progress, and three for returned batches still in use.
                count = config.num_workers * config.prefetch_batches + 3
                self._take_buffer = SharedBuffers(count, *decoder.room(self._batch_size)).take
            # Fork before the fetch threads start: they would not survive a fork.
            self._pool = WorkerPool(
                decoder, config.num_workers, prefetch=config.prefetch_batches, timeout_s=config.timeout_s
            )
        if torch.cuda.is_available():
            self._pinner = ThreadPoolExecutor(1, thread_name_prefix="pcr-exp-pin")
        self._fetcher.start()
        return self._pool

    def _submit(self, pool: Pool, *, may_wait: bool) -> None:
        """Fill the pool with batches. With `may_wait`, wait for storage, but only for the first of them."""
        # Batches being pinned count, too; otherwise they would pile up if the trainer is slow.
        while self._is_planned and len(self._submitted) + len(self._pinned) < pool.capacity:
            try:
                task = self._filled(may_wait=may_wait and not self._submitted)
            # The error is queued, so that any number of workers first returns all earlier batches.
            except PcrExpError as error:
                self._submitted.append(error)
                self._is_planned = False
                return
            if task is None:
                return
            pool.submit(task.images)
            self._submitted.append(task)

    def _filled(self, *, may_wait: bool) -> _Task | None:
        """Collect the files of the next batch. None: there is none, or bytes are late and it stays begun."""
        task = self._begun = self._begun or self._next_task()
        if task is None:
            return None
        plan, reads = task.plan, self._reads
        for position, read, sample in plan.takes[len(task.labels) :]:
            # A stream that starts within an epoch first opens all reads in use at that position.
            while task.num_opened < len(plan.opens) and plan.opens[task.num_opened][0] <= position:
                if not self._fetcher.want(1) and not may_wait:
                    return None
                self._open_next(task)
            self._add(task, read, sample)
            reads.release(read, position)
        if plan.opens:
            reads.trim(position + 1)
        self._begun = None
        return task

    def _next_task(self) -> _Task | None:
        plan = next(self._planned, None)
        if plan is None:
            self._is_planned = False
            return None
        if plan.epoch != self._epoch:
            self._epoch, self._reads = plan.epoch, self._open_reads(plan.order)
        images = EncodedImages(Files(self._take_buffer()), plan.epoch, plan.slot, plan.index)
        return _Task(plan, images, self._reads.newest_group())

    def _open_next(self, task: _Task) -> None:
        """Wait for the next read and start using it."""
        first_use, read = task.plan.opens[task.num_opened]
        num_bytes, is_first = self._reads.open(read, *self._fetcher.take(1))
        task.num_opened += 1
        task.group = self._reads.newest_group()
        if first_use < task.plan.first:
            return  # counted in the batch of its first use
        task.record_bytes += num_bytes
        record = int(task.plan.order.records[read])
        if (part := self._source(task, record)) is not None:
            part.record_bytes += num_bytes
        if is_first:
            index = self._records.index
            task.full_bytes += index.prefix_bytes(record, index.num_groups)

    def _add(self, task: _Task, read: int, sample: int) -> None:
        record = int(task.plan.order.records[read])
        task.images.add(self._reads.samples(read), sample, self._records.index.records[record].file)
        task.labels.append(self._reads.label(read, sample, self._label))
        if (part := self._source(task, record)) is not None:
            part.num_images += 1

    def _source(self, task: _Task, record: int) -> SourcePart | None:
        name = self._records.source_of(record)
        return None if name is None else task.sources.setdefault(name, SourcePart())

    def _next_decoded(self, pool: Pool) -> Batch:
        if self._pinner is None:
            return self._take(pool)
        # Copied while the trainer works on the previous batch.
        while self._submitted and isinstance(task := self._submitted[0], _Task) and pool.has_result():
            self._submitted.popleft()
            self._pinned.append(self._pinner.submit(_pinned_batch, task, pool.result()))
        return self._pinned.popleft().result() if self._pinned else self._take(pool).pin_memory()

    def _take(self, pool: Pool) -> Batch:
        """Return the oldest submitted batch, with its pixels."""
        if not self._submitted:
            raise StopIteration
        task = self._submitted.popleft()
        if isinstance(task, PcrExpError):
            raise task
        return _batch(task, pool.result())

    def pause(self) -> None:
        """Start no new reads; return when those in flight have ended."""
        self._fetcher.pause()

    def resume(self) -> None:
        """Resume reading."""
        self._fetcher.resume()

    def close(self) -> None:
        """End all threads and processes, and the iteration."""
        self._closed = True
        self._fetcher.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        if self._pinner is not None:
            self._pinner.shutdown()

    def __del__(self) -> None:
        if not self._closed:
            self.close()


def _batch(task: _Task, result: Decoded | Failure) -> Batch:
    if isinstance(result, Failure):
        raise result.error
    return task.batch(result)


def _pinned_batch(task: _Task, result: Decoded | Failure) -> Batch:
    """Return a copy in page-locked memory. An error is raised in order, after all earlier batches."""
    return _batch(task, result).pin_memory()
