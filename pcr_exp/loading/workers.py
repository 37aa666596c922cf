"""Decoding, in worker processes or in the training process: an ordered pool, and what its workers do."""

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

# Workers are forked before this loader starts threads, and neither they nor libjpeg and OpenCV use what a
# fork breaks (CUDA, thread pools). Forking takes milliseconds; a fresh interpreter would import torch for
# seconds. Elsewhere than on Linux fork is not safe, and the platform's own way is used.
START_METHOD = "fork" if sys.platform == "linux" else None


class Decoded(NamedTuple):
    """What comes back for a batch's images."""

    pixels: npt.NDArray[Any] | None
    """uint8 [B, H, W, 3], or what a transform of whole images makes of them; None if they lie in the images'
    shared buffer."""
    decode_s: float
    shape: tuple[int, ...]
    dtype: str = "uint8"
    fields: dict[str, Any] | None = None
    """What travels beside the images: arrays [B, ...], or lists of B."""


class ImagesDecoder(Protocol):
    """Files in, pixels out: the part of the loader that may run in any process."""

    def room(self, num_images: int) -> tuple[int, int]:
        """(bytes of a batch's pixels, bytes of its files) that a shared buffer should have room for."""
        ...

    def __call__(self, images: EncodedImages) -> Decoded:
        """Decode and augment every image. Raises RecordError if one cannot be decoded."""
        ...


class BatchDecoder:
    """Crops of one size, of as much of each image as they show."""

    def __init__(self, transform: Transform, *, decode: Decoder, seed: int) -> None:
        self.image_size = transform.image_size
        self._transform = transform
        self._decode = decode
        self._seed = seed

    def room(self, num_images: int) -> tuple[int, int]:
        """Of the pixels, and as much for the files."""
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
        # All at once: a call for each number costs more than the number.
        draws = rng.random((len(images.files), self._transform.num_draws)).tolist()
        for file, group, name, drawn, out in zip(
            images.files, images.groups, images.names, draws, pixels, strict=True
        ):
            self._transform(self._decode(file, group, name), drawn, out)
        return Decoded(pixels if shared_buffer is None else None, time.perf_counter() - started_s, shape)


class Failure(NamedTuple):
    """An error that is raised in place of a batch."""

    error: BaseException


class Pool(Protocol):
    """Decodes batches; they come back in the order in which they were submitted."""

    capacity: int
    """How many may be submitted and not come back."""

    def submit(self, images: EncodedImages) -> None:
        """Begin, or note, a batch."""
        ...

    def has_result(self) -> bool:
        """Whether `result` would return at once."""
        ...

    def result(self) -> Decoded | Failure:
        """The oldest batch that has not come back, as soon as it is there."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


class InlinePool:
    """Decodes in this process, when a batch is asked for."""

    capacity = 1

    def __init__(self, decoder: ImagesDecoder) -> None:
        self._decoder = decoder
        self._submitted: deque[EncodedImages] = deque()

    def submit(self, images: EncodedImages) -> None:
        """Note a batch."""
        self._submitted.append(images)

    def has_result(self) -> bool:
        """Never: it is made when it is asked for."""
        return False

    def result(self) -> Decoded | Failure:
        """The batch that was submitted."""
        try:
            return self._decoder(self._submitted.popleft())
        except PcrExpError as error:
            return Failure(error)

    def close(self) -> None:
        """There is nothing to end."""


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection
    submitted: set[int]
    """Numbers of the batches that it has not given back."""


class WorkerPool:
    """Decodes in processes, each of which has up to `prefetch` batches waiting or at work."""

    def __init__(
        self, decoder: ImagesDecoder, num_workers: int, *, prefetch: int, timeout_s: float | None
    ) -> None:
        """Start the processes. `timeout_s` is the longest wait for a batch (None: for ever)."""
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
        """Send a batch to the worker that has fewest.

        Raises:
            LoaderError: it has died.
        """
        worker = min(self._workers, key=lambda worker: len(worker.submitted))
        try:
            worker.connection.send((self._num_submitted, images))
        except OSError as error:
            raise _death(worker.process) from error
        worker.submitted.add(self._num_submitted)
        self._num_submitted += 1

    def has_result(self) -> bool:
        """Whether `result` would return at once."""
        self._receive(0.0)
        return self._num_taken in self._results

    def result(self) -> Decoded | Failure:
        """The oldest batch, as soon as it is there.

        Raises:
            LoaderError: a worker died, or the batch has not come for `timeout_s`.
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
        """End the processes at once: they have nothing to save."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers = []

    def _receive(self, timeout_s: float | None) -> None:
        """Take what workers have given back, or wait until one does or dies."""
        sentinels = [worker.process.sentinel for worker in self._workers]
        ready = wait([*(worker.connection for worker in self._workers), *sentinels], timeout_s)
        for worker in self._workers:
            # What a worker gave back before it died is there to be read.
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
    process.join(1.0)  # its pipe may end a moment before it does
    code = process.exitcode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
    return LoaderError(
        f"a decoding process died: process {process.pid} {how}. The system may have killed it because memory "
        "ran out: lower the loader's num_workers, or batch_size."
    )


def prepare_process() -> None:
    """Let this process decode as a worker does: in one thread, keeping memory that it has freed."""
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    keep_freed_memory()


def _serve(connection: Connection, decoder: ImagesDecoder, parent: int) -> None:
    """Decode what comes through the connection, one batch after the other, until this process is ended."""
    # Ctrl-C goes to all processes of a terminal: the training process hears it, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent)
    prepare_process()
    waiting: queue.SimpleQueue[tuple[int, EncodedImages]] = queue.SimpleQueue()
    # Always read: if both sides wrote, each would wait for the other to read.
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
    # Whatever it is, it belongs to whoever takes this batch.
    except Exception as error:
        error.add_note(f"Raised in decoding process {os.getpid()}:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return Failure(LoaderError(f"decoding failed: {''.join(traceback.format_exception(error))}"))
        return Failure(error)
