"""Decoding in worker processes or in the training process: an ordered pool and its workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Protocol

import cv2
import numpy as np
import numpy.typing as npt
import torch

from pcr_exp.errors import LoaderError, PcrExpError
from pcr_exp.images.codec import Decoder
from pcr_exp.loading.batch import EncodedImages
from pcr_exp.loading.transform import Transform
from pcr_exp.system.process import end_with_parent, keep_freed_memory
from pcr_exp.system.randomness import Purpose, stream

# Workers are forked before this loader starts threads. Neither they nor libjpeg and OpenCV use anything that
# a fork breaks (CUDA, thread pools). Forking takes milliseconds; a fresh interpreter would spend seconds on
# importing torch. Fork is not safe on platforms other than Linux, so these use their default start method.
START_METHOD = "fork" if sys.platform == "linux" else None


class Decoded(NamedTuple):
    """The result of decoding a batch's images."""

    pixels: npt.NDArray[Any] | None
    """uint8 [B, H, W, 3], or the output of a transform of whole images. None if the pixels lie in the images'
    shared buffer."""
    decode_s: float
    shape: tuple[int, ...]
    dtype: str = "uint8"
    fields: dict[str, Any] | None = None
    """Fields of the images: arrays [B, ...] or lists of B."""


class ImagesDecoder(Protocol):
    """Turns files into pixels: the part of the loader that may run in any process."""

    def room(self, num_images: int) -> tuple[int, int]:
        """Return the space that a batch needs in a shared buffer: (pixel bytes, file bytes)."""
        ...

    def __call__(self, images: EncodedImages) -> Decoded:
        """Decode and augment every image. Raises RecordError if one cannot be decoded."""
        ...


class BatchDecoder:
    """Decodes crops of one size, and of each image only what its crop shows."""

    def __init__(self, transform: Transform, *, decode: Decoder, seed: int) -> None:
        self.image_size = transform.image_size
        self._transform = transform
        self._decode = decode
        self._seed = seed

    def room(self, num_images: int) -> tuple[int, int]:
        """Return the exact size of the pixels, and the same size for the files."""
        num_bytes = num_images * self.image_size**2 * 3
        return num_bytes, num_bytes

    def __call__(self, images: EncodedImages) -> Decoded:
        """Decode and augment every image.

        Raises:
            RecordError: an image cannot be decoded.
        """
        started_s = time.perf_counter()
        shape = len(images.files), self.image_size, self.image_size, 3
        shared_buffer = images.files.shared_buffer
        pixels = np.empty(shape, dtype=np.uint8) if shared_buffer is None else shared_buffer.pixels(shape)
        rng = stream(self._seed, Purpose.AUGMENTATION, images.epoch, images.slot, images.index)
        # Draw all numbers at once: a call per number costs more than the number itself.
        draws = rng.random((len(images.files), self._transform.num_draws)).tolist()
        for file, group, name, drawn, out in zip(
            images.files, images.groups, images.names, draws, pixels, strict=True
        ):
            self._transform(self._decode(file, group, name), drawn, out)
        return Decoded(pixels if shared_buffer is None else None, time.perf_counter() - started_s, shape)


class Failure(NamedTuple):
    """An error to raise in place of a batch."""

    error: BaseException


class Pool(Protocol):
    """Decodes batches and returns them in the order of submission."""

    capacity: int
    """Maximum number of batches submitted but not yet returned."""

    def submit(self, images: EncodedImages) -> None:
        """Start or queue a batch."""
        ...

    def has_result(self) -> bool:
        """Return whether `result` would return at once."""
        ...

    def result(self) -> Decoded | Failure:
        """Return the oldest outstanding batch, waiting for it if necessary."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


class InlinePool:
    """Decodes in this process, when a batch is requested."""

    capacity = 1

    def __init__(self, decoder: ImagesDecoder) -> None:
        self._decoder = decoder
        self._submitted: deque[EncodedImages] = deque()

    def submit(self, images: EncodedImages) -> None:
        """Queue a batch."""
        self._submitted.append(images)

    def has_result(self) -> bool:
        """Return False: a batch is decoded only when it is requested."""
        return False

    def result(self) -> Decoded | Failure:
        """Decode and return the oldest submitted batch."""
        try:
            return self._decoder(self._submitted.popleft())
        except PcrExpError as error:
            return Failure(error)

    def close(self) -> None:
        """Do nothing: there are no processes."""


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection
    submitted: set[int]
    """Numbers of the batches that it has not returned yet."""


class WorkerPool:
    """Decodes in processes, each with up to `prefetch` batches queued or in progress."""

    def __init__(
        self, decoder: ImagesDecoder, num_workers: int, *, prefetch: int, timeout_s: float | None
    ) -> None:
        """Start the processes. `timeout_s` limits the wait for a batch, in seconds (None: no limit)."""
        self.capacity = num_workers * prefetch
        self._timeout_s = timeout_s
        self._num_submitted = self._num_taken = 0
        self._results: dict[int, Decoded | Failure] = {}
        context = multiprocessing.get_context(START_METHOD)
        self._workers = []
        for i in range(num_workers):
            ours, theirs = context.Pipe()
            process = context.Process(  # type: ignore[attr-defined]  # of any context
                target=_serve, args=(theirs, decoder, os.getpid()), name=f"pcr-exp-decode-{i}", daemon=True
            )
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours, set()))

    def submit(self, images: EncodedImages) -> None:
        """Send a batch to the worker with the fewest batches.

        Raises:
            LoaderError: that worker has died.
        """
        worker = min(self._workers, key=lambda worker: len(worker.submitted))
        try:
            worker.connection.send((self._num_submitted, images))
        except OSError as error:
            raise _death(worker.process) from error
        worker.submitted.add(self._num_submitted)
        self._num_submitted += 1

    def has_result(self) -> bool:
        """Return whether `result` would return at once."""
        self._receive(0.0)
        return self._num_taken in self._results

    def result(self) -> Decoded | Failure:
        """Return the oldest outstanding batch, waiting for it if necessary.

        Raises:
            LoaderError: a worker died, or the batch did not arrive within `timeout_s`.
        """
        asked_s = time.monotonic()
        while self._num_taken not in self._results:
            left_s = None if self._timeout_s is None else asked_s + self._timeout_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise LoaderError(
                    f"no batch has come from the decoding processes for {self._timeout_s:g} s. If they are "
                    "only slow, raise the loader's timeout_s or num_workers."
                )
            self._receive(left_s)
        self._num_taken += 1
        return self._results.pop(self._num_taken - 1)

    def close(self) -> None:
        """Kill the processes: they have nothing to save."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers = []

    def _receive(self, timeout_s: float | None) -> None:
        """Collect results; if there are none, wait up to `timeout_s` until a worker returns one or dies."""
        sentinels = [worker.process.sentinel for worker in self._workers]
        ready = wait([*(worker.connection for worker in self._workers), *sentinels], timeout_s)
        for worker in self._workers:
            # Results that a worker sent before it died can still be read.
            if worker.connection in ready:
                try:
                    number, result = worker.connection.recv()
                except (EOFError, OSError):
                    raise _death(worker.process) from None
                worker.submitted.discard(number)
                self._results[number] = result
            elif worker.process.sentinel in ready:
                raise _death(worker.process)


def _death(process: BaseProcess) -> LoaderError:
    process.join(1.0)  # its pipe may close a moment before the process ends
    code = process.exitcode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
    return LoaderError(
        f"a decoding process died: process {process.pid} {how}. The system may have killed it because memory "
        "ran out: lower the loader's num_workers, or batch_size."
    )


def prepare_process() -> None:
    """Set up this process to decode as a worker does: in one thread, reusing freed memory."""
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    keep_freed_memory()


def _serve(connection: Connection, decoder: ImagesDecoder, parent: int) -> None:
    """Decode batches from the connection, one after another, until this process is ended."""
    # Ctrl-C reaches all processes of a terminal. The training process handles it and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent)
    prepare_process()
    waiting: queue.SimpleQueue[tuple[int, EncodedImages]] = queue.SimpleQueue()
    # Always keep reading: if both sides wrote, each would wait for the other to read.
    threading.Thread(target=_receive_all, args=(connection, waiting), daemon=True).start()
    while True:
        number, images = waiting.get()
        connection.send((number, _attempt(decoder, images)))


def _receive_all(connection: Connection, waiting: queue.SimpleQueue[tuple[int, EncodedImages]]) -> None:
    try:
        while True:
            waiting.put(connection.recv())
    except (EOFError, OSError):  # the other side is closed
        os._exit(0)


def _attempt(decoder: ImagesDecoder, images: EncodedImages) -> Decoded | Failure:
    try:
        return decoder(images)
    except PcrExpError as error:
        return Failure(error)
    # Pass any error on to the caller that takes this batch.
    except Exception as error:
        error.add_note(f"Raised in decoding process {os.getpid()}:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return Failure(LoaderError(f"decoding failed: {''.join(traceback.format_exception(error))}"))
        return Failure(error)
