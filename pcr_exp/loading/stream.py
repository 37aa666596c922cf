"""One continuous run of batches: fetch threads, decode workers, and their orderly end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pcr_exp.config import LoaderConfig
from pcr_exp.errors import LoaderError, PcrExpError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.pool import open_pool
from pcr_exp.loading.tasks import Tasks
from pcr_exp.loading.workers import BatchDecoder


class BatchStream:
    """Iterator over batches. Nothing is read before the first `next`; `close` ends all that it started."""

    def __init__(self, tasks: Tasks, decoder: BatchDecoder, config: LoaderConfig) -> None:
        self._tasks = tasks
        self._decoder = decoder
        self._config = config
        self._pool: Iterator[Any] | None = None
        self._closed = False

    def __iter__(self) -> BatchStream:
        return self

    def __next__(self) -> Batch:
        """The next batch; waits for storage and decoding.

        Raises:
            RecordError, StorageError: reading or decoding failed; all batches before have come out.
            LoaderError: a worker process died, or the stream is paused and what it had read is used up.
        """
        if self._closed:
            raise StopIteration
        try:
            return self._next()
        except BaseException:
            self.close()
            raise

    def _next(self) -> Batch:
        while True:
            item = self._next_item()
            if item is None:
                continue
            self._tasks.num_decoding -= 1
            if isinstance(item, PcrExpError):
                raise item
            return item

    def _next_item(self) -> Batch | PcrExpError | None:
        try:
            if self._pool is None:
                # Forks the workers, then asks for the first task, and only that starts the fetch threads.
                self._pool = iter(open_pool(self._decoder, self._tasks, self._config))
            return next(self._pool)
        except RuntimeError as error:
            # torch has no class of its own for a worker that died; other errors of a worker keep theirs.
            if str(error).startswith("DataLoader worker (pid"):
                raise LoaderError(
                    f"a decoding process died: {error} The system may have killed it for want of memory: "
                    "lower loader.num_workers, loader.prefetch_batches or training.batch_size."
                ) from error
            raise

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
        # Letting go of it would do the same, but only once no traceback holds it any more.
        shut_down = getattr(pool, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()

    def __del__(self) -> None:
        if not self._closed:
            self.close()
