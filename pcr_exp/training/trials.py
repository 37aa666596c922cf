"""A short while of training at each of several scan groups, each from the same model, and back again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from pcr_exp.errors import RunError
from pcr_exp.loading.batch import Batch
from pcr_exp.training.preserve import preserved
from pcr_exp.training.schedule import learning_rate
from pcr_exp.training.trainer import Trainer


def trial_losses(
    trainer: Trainer,
    batches: Callable[[int], AbstractContextManager[Iterable[Batch]]],
    candidates: Iterable[int],
    *,
    step: int,
    steps_per_epoch: int,
    evaluate: Callable[[], float] | None = None,
) -> dict[int, float]:
    """How well each candidate does: the loss that `evaluate` gives after its trial.

    Without `evaluate`, the mean training loss over the second half of the trial's updates. The trainer, when
    this returns or fails, is what it was.

    Args:
        batches: Opens a trial's batches, the same images at each scan group.
        step: The next update of the run, from which a trial's learning rates are taken.

    Raises:
        RunError: a loss is not finite.
    """
    losses: dict[int, float] = {}
    with preserved(trainer) as restore:
        for group in candidates:
            seen: list[float] = []
            with batches(group) as stream:
                for batch in stream:
                    i = step + len(seen)
                    loss = trainer.update(
                        batch.images,
                        batch.labels,
                        step=i,
                        learning_rate=learning_rate(trainer.config, i, steps_per_epoch),
                        slot=batch.slot,
                        part=batch.part,
                        num_parts=batch.num_parts,
                    )
                    if batch.completes_update:
                        seen.append(_finite(loss, "training loss", step, len(seen) + 1, group))
            if evaluate is None:
                losses[group] = sum(seen[len(seen) // 2 :]) / (len(seen) - len(seen) // 2)
            else:
                losses[group] = _finite(evaluate(), "validation loss", step, len(seen), group)
            restore()
    return losses


def _finite(loss: float, what: str, step: int, count: int, group: int) -> float:
    if not math.isfinite(loss):
        raise RunError(
            f"the {what} is {loss} after step {step}, at update {count} of the scan policy's trial of scan "
            f"group {group}: training diverged. Rows up to here are kept; lower training.learning_rate or "
            "lengthen training.warmup_epochs."
        )
    return loss
