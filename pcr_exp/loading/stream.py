"""One continuous run of batches: fetch threads, decode workers, and their orderly end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.shared_buffers import Slabs
from pcr_exp.loading.tasks import Task, Tasks
from pcr_exp.loading.workers import START_METHOD, Failure, ImagesDecoder, InlinePool, Pool, WorkerPool


@dataclass(frozen=True, slots=True)
class Effort:
    """What a loader did since it was made."""

    read_s: float = 0.0
    """Seconds in which at least one read was in flight."""
    decode_s: float = 0.0
    """Seconds of decoding and augmenting, summed over processes."""
    num_decoded: int = 0
    """Images that they gave."""

    def __add__(self, other: Effort) -> Effort:
        return Effort(
            self.read_s + other.read_s, self.decode_s + other.decode_s, self.num_decoded + other.num_decoded
        )


class BatchStream:
    """Iterator over batches. Nothing is read before the first `next`; `close` ends all that it started."""

    def __init__(self, tasks: Tasks, decoder: ImagesDecoder, config: LoaderConfig) -> None:
        self._tasks = tasks
        self._decoder = decoder
        self._config = config
        self._pool: Pool | None = None
        self._to_come: Iterator[Task | PcrExpError | None] = iter(())
        self._submitted: deque[Task | PcrExpError] = deque()
        """What is being decoded, and the error that ends the stream, if any, in its place."""
        self._pinned: deque[Future[Batch]] = deque()
        """Decoded batches on their way to page-locked memory."""
        self._pinner: ThreadPoolExecutor | None = None
        self._closed = False
        self._decode_s = 0.0
        self._num_decoded = 0

    @property
    def effort(self) -> Effort:
        """What this stream did so far."""
        return Effort(self._tasks.fetcher.busy_s, self._decode_s, self._num_decoded)

    def __iter__(self) -> BatchStream:
        return self

    def __next__(self) -> Batch:
        """The next batch; waits for storage and decoding.

        Raises:
            RecordError, StorageError: reading or decoding failed; all batches before have come out.
            LoaderError: a worker process died; nothing came for `loader.timeout_s`; or the stream is paused
                and what it had read is used up.
        """
        if self._closed:
            raise StopIteration
        try:
            batch = self._next()
        except BaseException:
            self.close()
            raise
        self._decode_s += batch.decode_s
        self._num_decoded += len(batch.labels)
        return batch

    def _next(self) -> Batch:
        pool = self._pool or self._start()
        self._submit(pool, may_wait=not (self._submitted or self._pinned))
        batch = self._next_decoded(pool)
        if self._config.num_workers > 0:
            self._submit(pool, may_wait=False)  # to be decoded while the trainer works
        return batch

    def _next_decoded(self, pool: Pool) -> Batch:
        if self._pinner is None:
            return self._take(pool)
        # Copied while the trainer works on what came before.
        while self._submitted and isinstance(self._submitted[0], Task) and pool.has_result():
            self._pinned.append(self._pinner.submit(self._take(pool).pin_memory))
        return self._pinned.popleft().result() if self._pinned else self._take(pool).pin_memory()

    def _start(self) -> Pool:
        config, decoder = self._config, self._decoder
        if config.num_workers == 0:
            self._pool = InlinePool(decoder)
        else:
            if START_METHOD == "fork":
                # One for every batch that may be under way, and three that came out and are still in use.
                count = config.num_workers * config.prefetch_batches + 3
                self._tasks.take_slab = Slabs(count, *decoder.room(self._tasks.batch_size)).take
            # Before the first task is asked for, which starts threads: they would not survive a fork.
            self._pool = WorkerPool(
                decoder, config.num_workers, prefetch=config.prefetch_batches, timeout_s=config.timeout_s
            )
        if torch.cuda.is_available():
            self._pinner = ThreadPoolExecutor(1, thread_name_prefix="pcr-exp-pin")
        self._to_come = iter(self._tasks)
        return self._pool

    def _submit(self, pool: Pool, *, may_wait: bool) -> None:
        """Give the pool as many batches as it has room for; wait for storage for the first at most."""
        while len(self._submitted) < pool.capacity:
            self._tasks.may_wait = may_wait and not self._submitted
            try:
                task = next(self._to_come)
            except StopIteration:
                return
            if task is None:
                return
            if isinstance(task, Task):
                pool.submit(task.images)
            self._submitted.append(task)

    def _take(self, pool: Pool) -> Batch:
        """The oldest batch that was submitted, with its pixels."""
        if not self._submitted:
            raise StopIteration
        task = self._submitted.popleft()
        if isinstance(task, PcrExpError):
            raise task
        result = pool.result()
        if isinstance(result, Failure):
            raise result.error
        pixels, slab = result.pixels, task.images.files.slab
        if pixels is None:
            assert slab is not None
            pixels = slab.receive(result.shape, result.dtype)
        return replace(task.batch, images=torch.from_numpy(pixels), decode_s=result.decode_s)

    def pause(self) -> None:
        """Let no read begin; return when those in flight have ended."""
        self._tasks.fetcher.pause()

    def resume(self) -> None:
        """Let reads begin again."""
        self._tasks.fetcher.resume()

    def close(self) -> None:
        """End all threads and processes; the iterator is over."""
        self._closed = True
        self._tasks.fetcher.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        if self._pinner is not None:
            self._pinner.shutdown()

    def __del__(self) -> None:
        if not self._closed:
            self.close()
