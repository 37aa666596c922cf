"""Decoding a task into a batch, in a worker process or in the training process."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import cv2
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.errors import LoaderError, PcrExpError
from pcr_exp.images.codec import Decoder
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.slabs import Slabs, receive_pixels
from pcr_exp.loading.tasks import Task, Tasks
from pcr_exp.loading.transform import Transform
from pcr_exp.system.orphans import end_with_parent
from pcr_exp.system.randomness import Purpose, stream

Decoded: TypeAlias = Batch | PcrExpError | None
"""What comes back for a task: its batch, an error to raise in its place, or None if there was none yet."""


class BatchDecoder(Dataset[Decoded]):
    """Tasks in, batches out: the part of the loader that may run in any process."""

    def __init__(self, transform: Transform, *, decode: Decoder, seed: int) -> None:
        self.image_size = transform.image_size
        self._transform = transform
        self._decode = decode
        self._seed = seed

    def __getitem__(self, task: Task | PcrExpError | None) -> Decoded:
        """The task's batch. Errors for people are returned; the training process raises them as they are."""
        if not isinstance(task, Task):
            return task
        return self.decode(task, _empty_images(len(task.jpegs), self.image_size))

    def decode(self, task: Task, images: torch.Tensor) -> Batch | PcrExpError:
        """The task's batch, in `images`, uint8 [B, image_size, image_size, 3]."""
        started_s = time.perf_counter()
        rng = stream(self._seed, Purpose.AUGMENTATION, task.epoch, task.slot, task.index)
        # All at once: a call for each number costs more than the number.
        draws = rng.random((len(task.jpegs), self._transform.num_draws)).tolist()
        try:
            for jpeg, group, name, drawn, place in zip(
                task.jpegs, task.groups, task.names, draws, images.numpy(), strict=True
            ):
                self._transform(self._decode(jpeg, group, name), drawn, place)
        except PcrExpError as error:
            return error
        return Batch(
            images=images,
            labels=torch.from_numpy(task.labels),
            epoch=task.epoch,
            index=task.index,
            num_batches=task.num_batches,
            record_bytes=task.record_bytes,
            full_bytes=task.full_bytes,
            group=task.group,
            num_repeats=task.num_repeats,
            decode_s=time.perf_counter() - started_s,
            slot=task.slot,
            part=task.part,
            num_parts=task.num_parts,
        )


def _empty_images(count: int, size: int) -> torch.Tensor:
    """uint8 [count, size, size, 3]; in a worker in shared memory, so that handing it over copies nothing."""
    shape = (count, size, size, 3)
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    # The same call by which torch's own collate function allocates in a worker.
    storage = torch.UntypedStorage._new_shared(count * size * size * 3, device="cpu")
    return torch.empty(0, dtype=torch.uint8).set_(storage).view(shape)


# Workers are forked before this loader starts threads, and neither they nor libjpeg and OpenCV use what a
# fork breaks (CUDA, thread pools). Forking takes milliseconds; a fresh interpreter would import torch for
# seconds. Elsewhere than on Linux fork is not safe, and the platform's own way is used.
_START_METHOD = "fork" if sys.platform == "linux" else None
POLL_S = 5.0
"""How often a wait for a worker is interrupted, to look whether it has become too long."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 2**26


def open_pool(decoder: BatchDecoder, tasks: Tasks, config: LoaderConfig) -> DataLoader[Decoded]:
    """torch's loader, used as an ordered process pool: `tasks` are asked for in the training process."""
    dataset: Dataset[Decoded] = decoder
    sampler: Iterable[Any] = tasks
    if config.num_workers > 0 and _START_METHOD == "fork":
        # One for every batch that may be under way, and three for those that came out and are still in use.
        count = config.num_workers * config.prefetch_batches + 3
        slabs = Slabs(count, tasks.batch_size * decoder.image_size**2 * 3)
        dataset, sampler = SlabDecoder(decoder, slabs), TasksWithSlabs(tasks, slabs)
    return DataLoader(
        dataset,
        sampler=sampler,
        batch_size=None,
        num_workers=config.num_workers,
        prefetch_factor=config.prefetch_batches if config.num_workers else None,
        multiprocessing_context=_START_METHOD if config.num_workers else None,
        collate_fn=_as_is,
        worker_init_fn=functools.partial(_init_worker, os.getpid()),
        timeout=min(POLL_S, config.timeout_s) if config.num_workers and config.timeout_s else 0,
        pin_memory=torch.cuda.is_available(),
        # Else it draws from the global generator, and a resumed run's random numbers would differ.
        generator=torch.Generator(),
    )


def _as_is(decoded: Any) -> Any:
    return decoded


def _init_worker(parent: int, worker: int) -> None:  # noqa: ARG001
    # torch looks after its workers too, but only between two tasks. One that was handed half a task, and will
    # never get the rest, would stay.
    end_with_parent(parent)
    # torch sets its own threads to one in a worker; OpenCV must be told.
    cv2.setNumThreads(0)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let a worker keep up to 64 MiB that it has freed, where its C library is glibc.

    By itself glibc gives megabytes back at once, and gets them again, page by page and cleared, for the
    coefficients and pixels of the next image.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


@contextmanager
def named_worker_death() -> Iterator[None]:
    """Within, a LoaderError takes the place of torch's RuntimeError about a worker that died.

    torch raises it where the main thread happens to be when the signal of the death comes, be it in the
    middle of an update: so this belongs around a whole run, not only around the loader.
    """
    try:
        yield
    except RuntimeError as error:
        # torch has no class of its own for it; other errors keep theirs.
        if not str(error).startswith("DataLoader worker (pid"):
            raise
        raise LoaderError(
            f"a decoding process died: {error} The system may have killed it for want of memory: "
            "lower loader.num_workers, loader.prefetch_batches or training.batch_size."
        ) from error


@dataclass(frozen=True, slots=True)
class TaskInSlab:
    """A task whose JPEG bytes lie end to end in a slab, to which its batch is to be written."""

    task: Task
    """`jpegs` is empty."""
    slab: int
    lengths: list[int]
    """Of the JPEGs."""


class TasksWithSlabs:
    """The tasks, each in a slab if one is free and large enough."""

    def __init__(self, tasks: Tasks, slabs: Slabs) -> None:
        self._tasks = tasks
        self._slabs = slabs

    def __iter__(self) -> Iterator[TaskInSlab | Task | PcrExpError | None]:
        for task in self._tasks:
            yield self._move(task) if isinstance(task, Task) else task

    def _move(self, task: Task) -> TaskInSlab | Task:
        lengths = [len(jpeg) for jpeg in task.jpegs]
        slab = self._slabs.take() if sum(lengths) <= self._slabs.num_bytes else None
        if slab is None:
            return task
        self._slabs.put(slab, task.jpegs)
        return TaskInSlab(replace(task, jpegs=[]), slab, lengths)


class SlabDecoder(Dataset[Any]):
    """A decoder, as it works in a process that was forked after `slabs` were made."""

    def __init__(self, decoder: BatchDecoder, slabs: Slabs) -> None:
        self._decoder = decoder
        self._slabs = slabs

    def __getitem__(self, sent: TaskInSlab | Task | PcrExpError | None) -> Decoded | SentBatch:
        """The task's batch; on its way to the training process if it is in a slab."""
        if not isinstance(sent, TaskInSlab):
            return self._decoder[sent]
        # Copies: the batch will overwrite the slab.
        task = replace(sent.task, jpegs=self._slabs.pieces(sent.slab, sent.lengths))
        size = self._decoder.image_size
        images = self._slabs.pixels(sent.slab, (len(task.jpegs), size, size, 3))
        batch = self._decoder.decode(task, torch.from_numpy(images))
        return SentBatch(batch, self._slabs.number, sent.slab) if isinstance(batch, Batch) else batch


class SentBatch:
    """Pickled, this is a slab's number; unpickled in the training process, it is the batch."""

    def __init__(self, batch: Batch, slabs: int, slab: int) -> None:
        self._batch = batch
        self._slabs = slabs
        self._slab = slab

    def __reduce__(self) -> tuple[Callable[..., Batch], tuple[Any, ...]]:
        batch = self._batch
        told = (
            *(batch.epoch, batch.index, batch.num_batches, batch.record_bytes, batch.full_bytes, batch.group),
            *(batch.num_repeats, batch.decode_s, batch.slot, batch.part, batch.num_parts),
        )
        return _receive, (self._slabs, self._slab, tuple(batch.images.shape), batch.labels.numpy(), *told)


def _receive(slabs: int, slab: int, shape: tuple[int, ...], labels: Any, *told: Any) -> Batch:
    images = torch.from_numpy(receive_pixels(slabs, slab, shape))
    return Batch(images, torch.from_numpy(labels), *told)
