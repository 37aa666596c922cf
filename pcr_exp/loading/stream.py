"""One continuous run of batches: fetch threads, decode workers, and their orderly end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.errors import LoaderError, PcrExpError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.echo.ratio import Effort
from pcr_exp.loading.tasks import Tasks
from pcr_exp.loading.workers import BatchDecoder, named_worker_death, open_pool


class BatchStream:
    """Iterator over batches. Nothing is read before the first `next`; `close` ends all that it started."""

    def __init__(self, tasks: Tasks, decoder: BatchDecoder, config: LoaderConfig) -> None:
        self._tasks = tasks
        self._decoder = decoder
        self._config = config
        self._pool: Iterator[Any] | None = None
        self._closed = False
        self._decode_s = 0.0
        self._num_decoded = 0

    @property
    def effort(self) -> Effort:
        """Of this stream so far."""
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
            self._decode_s += item.decode_s
            self._num_decoded += len(item.labels)
            return item

    def _next_item(self) -> Batch | PcrExpError | None:
        if self._pool is None:
            # Forks the workers, then asks for the first task, and only that starts the fetch threads.
            self._pool = iter(open_pool(self._decoder, self._tasks, self._config))
        asked_s = time.monotonic()
        while True:
            try:
                with named_worker_death():
                    return next(self._pool)
            except RuntimeError as error:
                # With a timeout, torch gives up on a wait, but keeps all it needs to go on with it.
                if not str(error).startswith("DataLoader timed out"):
                    raise
                self._require_patience(asked_s)

    def _require_patience(self, asked_s: float) -> None:
        timeout_s = self._config.timeout_s
        if timeout_s is not None and time.monotonic() - asked_s >= timeout_s:
            raise LoaderError(
                f"no batch has come from the decoding processes for {timeout_s:g} s. If they are only slow, "
                "raise loader.timeout_s (null: no limit) or loader.num_workers."
            )

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
