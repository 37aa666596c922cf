"""Where a run stands: counted in updates, batches, images and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class MeanLoss:
    """A running mean of losses, each weighted by its batch's images."""

    total: float = 0.0
    num_images: int = 0

    def add(self, loss: float, num_images: int) -> None:
        """Take in a batch's mean loss."""
        self.total += loss * num_images
        self.num_images += num_images

    @property
    def mean(self) -> float:
        """The mean loss per image."""
        return self.total / self.num_images


@dataclass(slots=True)
class Progress:
    """All counters of training; saved whole, so that a resumed run's rows equal an uninterrupted run's."""

    step: int = 0
    """Updates done."""
    epoch: int = 0
    """Epoch of the next update, from 0."""
    batch: int = 0
    """Index of the next update in its epoch."""
    samples_seen: int = 0
    """Fresh images: each counts once an epoch, however often it is used."""
    samples_trained: int = 0
    """Images of all updates, repeats included."""
    record_bytes: int = 0
    """Of the records that the samples came from, each time they were read for an epoch."""
    full_bytes: int = 0
    """The same, had every record been read with all its scan groups."""
    probe_bytes: int = 0
    """That storage delivered to a scan policy's probes."""
    scan_group: int = 0
    """Of the last batch."""
    learning_rate: float = 0.0
    """Of the last update."""
    epoch_loss: MeanLoss = field(default_factory=MeanLoss)
    """Since the epoch began."""
    interval_loss: MeanLoss = field(default_factory=MeanLoss)
    """Since the last train row."""
    interval_start: dict[str, float] = field(default_factory=dict)
    """Clocks, images and bytes at the last train row (empty: none yet)."""

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers and dicts."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Progress:
        """Make what `state_dict` described; counters that are newer than the checkpoint begin at zero."""
        values = {f.name: state[f.name] for f in fields(cls) if f.name in state}
        for key in ("epoch_loss", "interval_loss"):
            values[key] = MeanLoss(**values[key])
        return cls(**values)
