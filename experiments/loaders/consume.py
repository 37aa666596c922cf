"""What one reader of several takes from its loader until it is told to stop."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pcr_exp.errors import LoaderError
from pcr_exp.measuring.throughput.job import Job, Peer
from pcr_exp.measuring.throughput.measure import check, closing, pretend_to_train
from pcr_exp.system.machine import own_cpu_s


class Arrival(NamedTuple):
    """A batch came."""

    monotonic_s: float
    """When it came, by the clock that all processes of the host share."""
    num_before: int
    """Images that had come before it."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """What one process got until it was told to stop."""

    arrivals: list[Arrival]
    num_images: int
    cpu_s: float
    """CPU seconds of the process and its workers, which have ended by then; opening the loader included."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Consumed:
        """What `to_json` wrote."""
        return cls(**{**values, "arrivals": [Arrival(*arrival) for arrival in values["arrivals"]]})


def consume(peer: Peer, folder: Path, job: Job, until_s: float) -> Consumed:
    """Take batches at the speed of the job's model until `until_s` of the monotonic clock.

    Raises:
        LoaderError: the epochs ended before, or as `measure` raises it.
    """
    cpu_s = own_cpu_s()
    arrivals, num_images = [], 0
    batches = closing(peer.batches(folder, job))
    for images in batches:
        received_s = time.perf_counter()
        arrivals.append(Arrival(time.monotonic(), num_images))
        check(images, job)
        count = int(images.shape[0])
        num_images += count
        if arrivals[-1].monotonic_s >= until_s:
            break
        pretend_to_train(count, job, received_s)
    else:
        raise LoaderError(
            f"{job.loader}: {job.num_epochs} epochs ended before the time that was to be measured was over."
        )
    batches.close()
    return Consumed(arrivals, num_images, own_cpu_s() - cpu_s)
