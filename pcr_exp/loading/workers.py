"""Decoding a task into a batch, in a worker process or in the training process."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import cv2
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from pcr_exp.config import LoaderConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.decode import Decoder
from pcr_exp.loading.randomness import Purpose, stream
from pcr_exp.loading.tasks import Task, Tasks
from pcr_exp.loading.transform import Transform

Decoded: TypeAlias = Batch | PcrExpError | None
"""What comes back for a task: its batch, an error to raise in its place, or None if there was none yet."""

# Workers are forked before this loader starts threads, and neither they nor libjpeg and OpenCV use what a
# fork breaks (CUDA, thread pools). Forking takes milliseconds; a fresh interpreter would import torch for
# seconds. Elsewhere than on Linux fork is not safe, and the platform's own way is used.
_START_METHOD = "fork" if sys.platform == "linux" else None


class BatchDecoder(Dataset[Decoded]):
    """Tasks in, batches out: the part of the loader that may run in any process."""

    def __init__(self, transform: Transform, *, decode: Decoder, seed: int, rank: int) -> None:
        self._transform = transform
        self._decode = decode
        self._seed = seed
        self._rank = rank

    def __getitem__(self, task: Task | PcrExpError | None) -> Decoded:
        """The task's batch. Errors for people are returned; the training process raises them as they are."""
        if not isinstance(task, Task):
            return task
        try:
            return self._batch(task)
        except PcrExpError as error:
            return error

    def _batch(self, task: Task) -> Batch:
        size = self._transform.image_size
        images = _empty_images(len(task.jpegs), size)
        places = images.numpy()
        rng = stream(self._seed, Purpose.AUGMENTATION, task.epoch, self._rank, task.index)
        # All at once: a call for each number would take a tenth of the time of an image at scan group 1.
        draws = rng.random((len(task.jpegs), self._transform.num_draws)).tolist()
        for jpeg, group, name, drawn, place in zip(
            task.jpegs, task.groups, task.names, draws, places, strict=True
        ):
            self._transform(self._decode(jpeg, group, name), drawn, place)
        return Batch(
            images=images,
            labels=torch.from_numpy(task.labels),
            epoch=task.epoch,
            index=task.index,
            num_batches=task.num_batches,
            record_bytes=task.record_bytes,
            group=task.group,
        )


def _empty_images(count: int, size: int) -> torch.Tensor:
    """uint8 [count, size, size, 3]; in a worker in shared memory, so that handing it over copies nothing."""
    shape = (count, size, size, 3)
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    # The same call by which torch's own collate function allocates in a worker.
    storage = torch.UntypedStorage._new_shared(count * size * size * 3, device="cpu")
    return torch.empty(0, dtype=torch.uint8).set_(storage).view(shape)


def open_pool(decoder: BatchDecoder, tasks: Tasks, config: LoaderConfig) -> DataLoader[Decoded]:
    """torch's loader, used as an ordered process pool: `tasks` are asked for in the training process."""
    return DataLoader(
        decoder,
        sampler=tasks,
        batch_size=None,
        num_workers=config.num_workers,
        prefetch_factor=config.prefetch_batches if config.num_workers else None,
        multiprocessing_context=_START_METHOD if config.num_workers else None,
        collate_fn=_as_is,
        worker_init_fn=_init_worker,
        pin_memory=torch.cuda.is_available(),
        # Else it draws from the global generator, and a resumed run's random numbers would differ.
        generator=torch.Generator(),
    )


def _as_is(decoded: Any) -> Any:
    return decoded


def _init_worker(worker: int) -> None:  # noqa: ARG001
    # torch sets its own threads to one in a worker; OpenCV must be told.
    cv2.setNumThreads(0)
