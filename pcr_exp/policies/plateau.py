"""`plateau`: when the training loss stops falling, try every candidate scan group for a while.

Then use the cheapest one that does about as well as the best (Kuchnik et al. 2019, loss tuning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pcr_exp.config.check import Bound, at_least
from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.policies.policy import Decision, OneGroup, PolicyInputs, TrialProbe, Update

if TYPE_CHECKING:
    from pcr_exp.policies.consensus import Consensus


_DROP = Bound(lambda share: 0 <= share < 1, "a share in [0, 1)")
_JUDGE = Bound(
    lambda split: split in ("train", "tune"),
    "train or tune (val is for reporting, so no decision may depend on it)",
)


@dataclass(kw_only=True, slots=True)
class PlateauConfig(CandidatesConfig):
    """At a plateau of the training loss, use the cheapest candidate that does about as well as the best."""

    patience_epochs: Annotated[int, at_least(1)] = 3
    """Epochs without a new lowest loss that count as a plateau."""
    min_drop: Annotated[float, _DROP] = 0.01
    """Minimum relative improvement that counts as a new lowest loss."""
    trial_steps: Annotated[int, at_least(1)] = 20
    """Updates at each candidate, at most one epoch."""
    tolerance: Annotated[float, at_least(0, "a share of 0 or more")] = 0.02
    """Relative increase over the best candidate's loss that is accepted for a cheaper one."""
    judge: Annotated[str, _JUDGE] = "train"
    """Loss of a candidate. `train`: training loss over the second half of its trial. `tune`: loss after its
    trial on whole images that were held out for tuning."""

    @property
    def uses_tune_split(self) -> bool:
        return self.judge == "tune"

    def num_probed(self, num_train: int, num_fresh: int, batch_size: int) -> int:  # noqa: ARG002
        """Return the images of a trial, which has no echo."""
        return min(num_fresh, self.trial_steps * batch_size)

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As for every policy. The second epoch is a plateau, and the fourth begins with a trial."""
        return {"patience_epochs": 1, "min_drop": 0.99, "trial_steps": 1}, 4


def is_plateau(losses: Sequence[float], *, patience_epochs: int, min_drop: float) -> bool:
    """Return whether no loss of the last `patience_epochs` is `min_drop` (a share) below all before them.

    `losses` has one value per epoch, each 0 or more. Without an earlier epoch, there is no plateau.
    """
    before, recent = losses[:-patience_epochs], losses[-patience_epochs:]
    return bool(before) and min(recent) > min(before) * (1 - min_drop)


def cheapest_within(losses: Mapping[int, float], tolerance: float) -> int:
    """Return the lowest group with a loss of at most (1 + tolerance) times the lowest loss (0 or more)."""
    limit = min(losses.values()) * (1 + tolerance)
    return min(group for group, loss in losses.items() if loss <= limit)


class PlateauScan(OneGroup):
    """A plateau detected after one epoch leads to a trial after the next.

    Reading may already be ahead in the epoch in between, and need not stop: only the epoch after a trial
    waits. Losses are collected anew after each trial.
    """

    def __init__(self, config: PlateauConfig, consensus: Consensus) -> None:
        """`consensus` gives all ranks the same losses."""
        super().__init__(config.group, config.candidates, undecided_from=2)
        self._probe = TrialProbe(tuple(config.candidates), config.trial_steps, config.judge)
        self._config = config
        self._consensus = consensus
        self._losses: list[float] = []
        self._total_loss, self._num_images = 0.0, 0
        self._trial_epoch: int | None = None

    def observe(self, update: Update) -> None:
        """Add up an epoch's loss; at its end, check for a plateau."""
        self._total_loss += update.loss * update.num_images
        self._num_images += update.num_images
        if not update.ends_epoch:
            return
        total, count = self._consensus.mean([self._total_loss, self._num_images])
        self._losses.append(total / count)
        self._total_loss, self._num_images = 0.0, 0
        if self._trial_epoch is None:
            following = update.epoch + 2
            patience_epochs, min_drop = self._config.patience_epochs, self._config.min_drop
            flat = is_plateau(self._losses, patience_epochs=patience_epochs, min_drop=min_drop)
            self._trial_epoch = following if flat else None
            self.undecided_from = following if flat else following + 1

    def wanted_probe(self, epoch: int) -> TrialProbe | None:
        """Return the trial of every candidate, if one is due."""
        return self._probe if epoch == self._trial_epoch else None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Choose the cheapest group with a loss close to the best."""
        assert self._trial_epoch is not None  # otherwise there was no trial
        chosen = cheapest_within(scores, self._config.tolerance)
        measure = "tune_loss" if self._probe.judge == "tune" else "train_loss"
        self.choose(Decision(chosen, measure, scores), undecided_from=self._trial_epoch + 2)
        self._losses, self._trial_epoch = [], None

    def state_dict(self) -> dict[str, Any]:
        """Return the group, the losses so far, and the epoch of the next trial."""
        return {
            **super().state_dict(),
            "losses": list(self._losses),
            "total_loss": self._total_loss,
            "num_images": self._num_images,
            "trial_epoch": self._trial_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self._losses = list(state["losses"])
        self._total_loss, self._num_images = state["total_loss"], state["num_images"]
        self._trial_epoch = state["trial_epoch"]


@register("scan", "plateau", PlateauConfig)
def open_plateau(config: PlateauConfig, run: PolicyInputs) -> PlateauScan:
    """Open the policy; all ranks see the same losses."""
    return PlateauScan(config, run.consensus)
