"""Measurement of one loader in this process, alone or as one of several concurrent readers."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pcr_exp.errors import LoaderError
from pcr_exp.measuring.throughput.job import Images, Job, Peer
from pcr_exp.system.machine import OwnCpu

_UNCOUNTED_EPOCHS = 2
"""Epochs around the counted ones: one in which the loader starts, and one that it reads ahead into."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Wall-clock times to consume `num_images` images in the middle of a stream."""

    num_images: int
    total_s: float
    """From the arrival of the first counted batch to that of the first batch after the counted ones."""
    first_batch_s: float
    """From opening the loader to its first batch: start-up time, not part of `total_s`."""
    wait_s: float
    """Part of `total_s` that the consumer spent waiting for a batch."""
    cpu_s: float
    """CPU seconds of this process and its workers during `total_s`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


class _Mark(NamedTuple):
    """Readings at the arrival of a batch, where counting begins or ends."""

    at_s: float
    cpu_s: float
    num_before: int
    wait_s: float


def measure(peer: Peer, folder: Path, job: Job, epoch_images: int) -> Measurement:
    """Measure `job.num_epochs` whole epochs in the middle of a longer, continuous stream.

    So no loader's start-up, shutdown or stock of finished batches affects its result.

    Args:
        peer: The loader.
        folder: Folder that it reads.
        job: The job, including the speed of its model.
        epoch_images: Images in an epoch.

    Raises:
        LoaderError: a batch does not have the shape or type that all loaders must give, or fewer images came
            than the epochs hold.
        Exception: whatever the loader raises.
    """
    first, end = epoch_images, epoch_images * (1 + job.num_epochs)
    stream = replace(job, num_epochs=job.num_epochs + _UNCOUNTED_EPOCHS)
    opened_s = now_s = time.perf_counter()
    num_images, wait_s, first_batch_s = 0, 0.0, 0.0
    cpu: OwnCpu | None = None
    begin: _Mark | None = None
    for images in closing(peer.batches(folder, stream)):
        received_s = time.perf_counter()
        wait_s += received_s - now_s
        first_batch_s = first_batch_s or received_s - opened_s
        check(images, job)
        cpu = cpu or OwnCpu()
        if num_images >= end and begin is not None:
            return _between(begin, _Mark(received_s, cpu.spent_s(), num_images, wait_s), first_batch_s)
        if num_images >= first and begin is None:
            begin = _Mark(received_s, cpu.spent_s(), num_images, wait_s)
        count = int(images.shape[0])
        num_images += count
        pretend_to_train(count, job, received_s)
        now_s = time.perf_counter()
    raise LoaderError(
        f"{job.loader} gave {num_images} images from {folder}, in {stream.num_epochs} epochs of "
        f"{epoch_images}: wanted more than {end}, because the next batch ends the measurement."
    )


def _between(begin: _Mark, end: _Mark, first_batch_s: float) -> Measurement:
    return Measurement(
        num_images=end.num_before - begin.num_before,
        total_s=end.at_s - begin.at_s,
        first_batch_s=first_batch_s,
        wait_s=end.wait_s - begin.wait_s,
        cpu_s=end.cpu_s - begin.cpu_s,
    )


def pretend_to_train(num_images: int, job: Job, received_s: float) -> None:
    """Sleep until the job's model would have trained a batch received at `received_s` (perf_counter)."""
    if job.model_images_per_s is not None:
        step_ends_s = received_s + num_images / job.model_images_per_s
        time.sleep(max(0.0, step_ends_s - time.perf_counter()))


def closing(batches: Iterator[Images]) -> Generator[Images, None, None]:
    """Yield the batches and close their iterator at the end, also after an error, so that workers end."""
    try:
        yield from batches
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def check(images: Images, job: Job) -> None:
    """Raise LoaderError for a batch without the shape and type that all loaders must give."""
    size = job.image_size
    shape, kind = tuple(images.shape)[1:], str(images.dtype)
    if shape not in ((size, size, 3), (3, size, size)) or "uint8" not in kind:
        raise LoaderError(
            f"{job.loader} gave a batch of {shape}, {kind}; wanted uint8 of {size} x {size} pixels in 3 "
            "colours, so that all loaders do the same work."
        )
