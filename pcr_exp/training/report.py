"""The counters of a run, and the rows made from them and its clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pcr_exp.policies.policy import Decision
from pcr_exp.system import MIB
from pcr_exp.training.clocks import Clocks


@dataclass(slots=True)
class MeanLoss:
    """A running mean of losses, each weighted by the number of images in its batch."""

    total: float = 0.0
    num_images: float = 0

    def add(self, loss: float, num_images: int) -> None:
        """Add a batch's mean loss."""
        self.total += loss * num_images
        self.num_images += num_images

    @property
    def mean(self) -> float:
        """The mean loss per image."""
        return self.total / self.num_images


@dataclass(slots=True)
class Progress:
    """All counters of training, saved so that a resumed run's rows equal an uninterrupted run's."""

    step: int = 0
    """Updates done."""
    epoch: int = 0
    """Epoch of the next update, from 0."""
    batch: int = 0
    """Index of the next update in its epoch."""
    samples_seen: int = 0
    """Fresh images: each counts once per epoch, however often it is used."""
    samples_trained: int = 0
    """Images of all updates, repeats included."""
    record_bytes: int = 0
    """Bytes of the samples' records, counted each time they are read for an epoch."""
    full_bytes: int = 0
    """The same, if every record had been read with all its scan groups."""
    num_replaced: int = 0
    """Images that stood in for damaged ones."""
    by_source: dict[str, int] = field(default_factory=dict)
    """Images and record bytes of each source of a mixture, by column name."""
    probe_bytes: int = 0
    """Bytes that storage delivered to a scan policy's probes."""
    scan_group: int = 0
    """The last batch's scan group."""
    learning_rate: float = 0.0
    """The last update's learning rate."""
    epoch_loss: MeanLoss = field(default_factory=MeanLoss)
    """Since the epoch began."""
    to_evaluate: bool = False
    """Whether the last completed epoch is still to be evaluated."""
    interval_loss: MeanLoss = field(default_factory=MeanLoss)
    """Since the last train row."""
    interval_start: dict[str, float] = field(default_factory=dict)
    """Clocks, images and bytes at the last train row (empty: none yet)."""

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers and dicts."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Progress:
        """Restore a `state_dict`; counters that the checkpoint does not have yet start at zero."""
        values = {f.name: state[f.name] for f in fields(cls) if f.name in state}
        for key in ("epoch_loss", "interval_loss"):
            values[key] = MeanLoss(**values[key])
        return cls(**values)


Row = dict[str, Any]

Measure = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns more columns of a row, given its counters and clocks."""


def no_measure(row: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG001
    """Return no further columns."""
    return {}


_INTERVAL = ("train_s", "wait_s", "eval_s", "wall_s", "samples_seen", "bytes_read")


@dataclass(frozen=True, slots=True)
class Reporter:
    """Maker of rows; `pcr_exp.training.columns` defines each column."""

    progress: Progress
    """Its interval and epoch means are reset when a row reports them."""
    clocks: Clocks
    """Read once per row."""
    bytes_read: Callable[[], int]
    """Bytes that storage has delivered since the run began."""
    measure: Measure = no_measure
    """Called once per row."""

    def train_row(self, epoch: int) -> Row:
        """Report the updates since the last train row; `epoch` counts from 1."""
        progress = self.progress
        now = self._cumulative()
        loss, progress.interval_loss = progress.interval_loss.mean, MeanLoss()
        start, progress.interval_start = progress.interval_start, {key: now[key] for key in _INTERVAL}
        return {"kind": "train", "epoch": epoch, **now, "train_loss": loss, **interval_rates(start, now)}

    def eval_row(self, epoch: int, train_loss: float, eval_group: str, scores: Mapping[str, Any]) -> Row:
        """Report a completed epoch and the scores, at `eval_group`, of the model it ended with."""
        counted = {"kind": "eval", "epoch": epoch, **self._cumulative()}
        return {**counted, "train_loss": train_loss, "eval_group": eval_group, **scores}

    def policy_row(self, decision: Decision) -> Row:
        """Report a scan policy's decision; `epoch` is the number of epochs completed."""
        progress = self.progress
        return {
            "kind": "policy",
            "epoch": progress.epoch,
            **self._cumulative(),
            "group": decision.group,
            "measure": decision.measure,
            "scores": {str(group): score for group, score in sorted(decision.scores.items())},
            "bytes_saved": progress.full_bytes - progress.record_bytes,
            **decision.columns,
        }

    def _cumulative(self) -> Row:
        progress = self.progress
        counted = {
            "step": progress.step,
            "samples_seen": progress.samples_seen,
            "samples_trained": progress.samples_trained,
            **self.clocks.read(),
            "scan_group": progress.scan_group,
            "record_bytes": progress.record_bytes,
            "full_bytes": progress.full_bytes,
            "probe_bytes": progress.probe_bytes,
            "bytes_read": self.bytes_read(),
            "num_replaced": progress.num_replaced,
            "learning_rate": progress.learning_rate,
            **progress.by_source,
        }
        return {**counted, **self.measure(counted)}


def interval_rates(start: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return the rates over the interval between two readings of clocks and counters.

    Args:
        start: Readings at its beginning; a missing one counts as zero.
        now: Readings at its end: `train_s`, `wait_s`, `eval_s`, `wall_s`, `samples_seen`, `bytes_read`.

    Returns:
        `images_per_s`: over train + wait. `storage_mib_per_s`: over wall time without evaluation, during
        which the loader is paused. `wait_share`: wait / (train + wait). Each is 0 if no time passed.
    """

    def passed(key: str) -> float:
        return now[key] - start.get(key, 0.0)

    busy_s = passed("train_s") + passed("wait_s")
    reading_s = passed("wall_s") - passed("eval_s")
    return {
        "images_per_s": passed("samples_seen") / busy_s if busy_s > 0 else 0.0,
        "storage_mib_per_s": passed("bytes_read") / MIB / reading_s if reading_s > 0 else 0.0,
        "wait_share": passed("wait_s") / busy_s if busy_s > 0 else 0.0,
    }
