"""The processes that decode: torch's DataLoader, used as an ordered pool."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterable
from typing import Any

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.loading.handover import SlabDecoder, TasksWithSlabs
from pcr_exp.loading.orphans import end_with_parent
from pcr_exp.loading.slabs import Slabs
from pcr_exp.loading.tasks import Tasks
from pcr_exp.loading.workers import BatchDecoder, Decoded

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
