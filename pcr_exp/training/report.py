"""The rows of a run, made from its counters and clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pcr_exp.policies.policy import Decision
from pcr_exp.training.clocks import Clocks
from pcr_exp.training.progress import MeanLoss, Progress

Row = dict[str, Any]

MIB = 2**20
Measure = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""More columns of a row, from its counters and clocks."""


def no_measure(row: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG001
    """None."""
    return {}


_INTERVAL = ("train_s", "wait_s", "eval_s", "wall_s", "samples_seen", "bytes_read")


class Reporter:
    """Makes rows; `pcr_exp.training.columns` says what each column is."""

    def __init__(
        self,
        progress: Progress,
        clocks: Clocks,
        bytes_read: Callable[[], int],
        measure: Measure = no_measure,
    ) -> None:
        """Report on these counters.

        Args:
            progress: Its interval and epoch means are begun anew by the row that reports them.
            clocks: Read once a row.
            bytes_read: What storage has delivered since the run began.
            measure: Called once a row.
        """
        self._progress = progress
        self._clocks = clocks
        self._bytes_read = bytes_read
        self._measure = measure

    def train_row(self, epoch: int) -> Row:
        """Report the updates since the last train row; `epoch` counts from 1."""
        progress = self._progress
        now = self._cumulative()
        loss, progress.interval_loss = progress.interval_loss.mean, MeanLoss()
        start, progress.interval_start = progress.interval_start, {key: now[key] for key in _INTERVAL}
        return {"kind": "train", "epoch": epoch, **now, "train_loss": loss, **interval_rates(start, now)}

    def eval_row(self, epoch: int, train_loss: float, scores: Mapping[str, Any]) -> Row:
        """Report a completed epoch and the scores of the model it ended with."""
        return {"kind": "eval", "epoch": epoch, **self._cumulative(), "train_loss": train_loss, **scores}

    def policy_row(self, decision: Decision) -> Row:
        """Report what a scan policy decided; `epoch` is the number of epochs completed."""
        progress = self._progress
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
        progress = self._progress
        counted = {
            "step": progress.step,
            "samples_seen": progress.samples_seen,
            "samples_trained": progress.samples_trained,
            **self._clocks.read(),
            "scan_group": progress.scan_group,
            "record_bytes": progress.record_bytes,
            "full_bytes": progress.full_bytes,
            "probe_bytes": progress.probe_bytes,
            "bytes_read": self._bytes_read(),
            "learning_rate": progress.learning_rate,
        }
        return {**counted, **self._measure(counted)}


def interval_rates(start: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return the rates of the stretch between two readings of clocks and counters.

    Args:
        start: Readings at its beginning; a missing one is zero.
        now: Readings at its end: `train_s`, `wait_s`, `eval_s`, `wall_s`, `samples_seen`, `bytes_read`.

    Returns:
        `images_per_s`: over train + wait. `storage_mib_per_s`: over the wall less evaluation, when the
        loader stands still. `wait_share`: wait / (train + wait). Each is 0 if no time passed.
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
