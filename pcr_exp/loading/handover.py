"""JPEG bytes to worker processes and batches back, both through slabs: numbers are all that travels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import Dataset

from pcr_exp.errors import PcrExpError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.slabs import Slabs, receive_pixels
from pcr_exp.loading.tasks import Task, Tasks
from pcr_exp.loading.workers import BatchDecoder, Decoded


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
