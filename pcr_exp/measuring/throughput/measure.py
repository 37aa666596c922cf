"""One measurement of one loader in this process, alone or as one reader of several."""

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
"""One in which a loader starts, and one that it reads ahead into: what is counted lies between."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of a consumer of `num_images` in the middle of a stream. Seconds are of the wall clock."""

    num_images: int
    total_s: float
    """From the arrival of the first batch that is counted to that of the first one that is no more."""
    first_batch_s: float
    """From opening the loader to its first batch: its start, which is no part of `total_s`."""
    wait_s: float
    """The part of `total_s` in which the consumer had no batch."""
    cpu_s: float
    """CPU seconds of this process and of its workers in `total_s`."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class _Mark(NamedTuple):
    """Where counting begins or ends: at the arrival of a batch."""

    at_s: float
    cpu_s: float
    num_before: int
    wait_s: float


def measure(peer: Peer, folder: Path, job: Job, epoch_images: int) -> Measurement:
    """Count `job.num_epochs` whole epochs in the middle of a stream that goes on over their edges.

    So neither a loader's start nor its end is counted, nor batches that it had ready, of any loader.

    Args:
        peer: The loader.
        folder: What it reads.
        job: What it is asked for, at the speed of its model.
        epoch_images: Images of an epoch.

    Raises:
        LoaderError: a batch does not have the shape or type that all loaders are asked for, or fewer came
            than epochs hold.
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
        f"{epoch_images}: wanted more than {end}, to count those before."
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
    """Return when the job's model would have trained a batch that came at `received_s` (perf_counter)."""
    if job.model_images_per_s is not None:
        step_ends_s = received_s + num_images / job.model_images_per_s
        time.sleep(max(0.0, step_ends_s - time.perf_counter()))


def closing(batches: Iterator[Images]) -> Generator[Images, None, None]:
    """The batches; workers end with them, also after an error."""
    try:
        yield from batches
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def check(images: Images, job: Job) -> None:
    """Refuse a batch of another shape or type than all loaders are asked for (LoaderError)."""
    size = job.image_size
    shape, kind = tuple(images.shape)[1:], str(images.dtype)
    if shape not in ((size, size, 3), (3, size, size)) or "uint8" not in kind:
        raise LoaderError(
            f"{job.loader} gave a batch of {shape}, {kind}; wanted uint8 of {size} x {size} pixels in 3 "
            "colours: else it does not do the same work."
        )
