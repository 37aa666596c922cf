"""Decoding a task into a batch, in a worker process or in the training process."""

from __future__ import annotations

import time
from typing import TypeAlias

import torch
from torch.utils.data import Dataset, get_worker_info

from pcr_exp.errors import PcrExpError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.decode import Decoder
from pcr_exp.loading.randomness import Purpose, stream
from pcr_exp.loading.tasks import Task
from pcr_exp.loading.transform import Transform

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
