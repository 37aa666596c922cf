"""`plateau`: when the training loss stops falling, try every scan group for a while and keep the cheapest
that does about as well as the best (Kuchnik et al. 2019, loss tuning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pcr_exp.policies.choose import cheapest_within
from pcr_exp.policies.consensus import Consensus
from pcr_exp.policies.policy import Decision, OneGroup, Update
from pcr_exp.policies.probe import TrialProbe


def is_plateau(losses: Sequence[float], *, patience_epochs: int, min_drop: float) -> bool:
    """Whether none of the last `patience_epochs` losses is `min_drop` (a share) below all before them.

    `losses` are of epochs, each 0 or more; without an epoch before them there is no plateau.
    """
    before, recent = losses[:-patience_epochs], losses[-patience_epochs:]
    return bool(before) and min(recent) > min(before) * (1 - min_drop)


class PlateauScan(OneGroup):
    """A plateau that is seen after an epoch leads to a trial after the next one.

    By then reading may be ahead in the epoch between, and need not stop: only the epoch after a trial waits.
    Losses are counted anew from each trial on.
    """

    def __init__(
        self,
        group: int,
        probe: TrialProbe,
        consensus: Consensus,
        *,
        patience_epochs: int,
        min_drop: float,
        tolerance: float,
    ) -> None:
        """`group` is the one to begin with; `consensus` makes all ranks see the same losses."""
        super().__init__(group, probe.candidates, undecided_from=2)
        self._probe = probe
        self._consensus = consensus
        self._patience_epochs = patience_epochs
        self._min_drop = min_drop
        self._tolerance = tolerance
        self._losses: list[float] = []
        self._total_loss, self._num_images = 0.0, 0
        self._trial_epoch: int | None = None

    def observe(self, update: Update) -> None:
        """Add up an epoch's loss; at its end, look for a plateau."""
        self._total_loss += update.loss * update.num_images
        self._num_images += update.num_images
        if not update.ends_epoch:
            return
        total, count = self._consensus.mean([self._total_loss, self._num_images])
        self._losses.append(total / count)
        self._total_loss, self._num_images = 0.0, 0
        if self._trial_epoch is None:
            following = update.epoch + 2
            flat = is_plateau(self._losses, patience_epochs=self._patience_epochs, min_drop=self._min_drop)
            self._trial_epoch = following if flat else None
            self.undecided_from = following if flat else following + 1

    def wanted_probe(self, epoch: int) -> TrialProbe | None:
        """The loss of every candidate, if the trial is due."""
        return self._probe if epoch == self._trial_epoch else None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Take the cheapest group whose loss is near the best."""
        assert self._trial_epoch is not None  # nothing is tried otherwise
        chosen = cheapest_within(scores, self._tolerance)
        measure = "tune_loss" if self._probe.judge == "tune" else "train_loss"
        self.choose(Decision(chosen, measure, scores), undecided_from=self._trial_epoch + 2)
        self._losses, self._trial_epoch = [], None

    def state_dict(self) -> dict[str, Any]:
        """Besides the group: the losses seen, and when the next trial is."""
        return {
            **super().state_dict(),
            "losses": list(self._losses),
            "total_loss": self._total_loss,
            "num_images": self._num_images,
            "trial_epoch": self._trial_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        super().load_state_dict(state)
        self._losses = list(state["losses"])
        self._total_loss, self._num_images = state["total_loss"], state["num_images"]
        self._trial_epoch = state["trial_epoch"]
