"""Epoch after epoch of a torch DataLoader whose workers stay, and end when they should."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from pcr_exp.measuring.peers.protocol import Images, Job


def worker_settings(job: Job) -> dict[str, Any]:
    """How a peer's DataLoader runs its workers: as many as ours, kept from epoch to epoch."""
    workers = job.settings.num_workers
    return {
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "prefetch_factor": job.settings.prefetch_batches if workers else None,
    }


def torch_epochs(loader: DataLoader[Any], num_epochs: int) -> Iterator[Images]:
    """The images of all batches of (images, labels)."""
    try:
        for _ in range(num_epochs):
            for images, _labels in loader:
                yield images
    finally:
        # CPU seconds of workers are known once they have ended; garbage collection would end them later.
        shut_down = getattr(loader._iterator, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
