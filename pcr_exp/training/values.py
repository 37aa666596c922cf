"""Tasks for labels other than a single class: several classes per image, or a real number.

Records store both as classes: one for each set of names that occurs (`cat;dog`), or for each number (`3.5`).
A task parses these names to turn class indexes into sets or numbers (`records/FORMAT.md`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.training import TaskConfig
from pcr_exp.errors import ConfigError, RunError, printable
from pcr_exp.records.class_values import members_of, multi_hot, number_of
from pcr_exp.system.lazy import torch
from pcr_exp.training.task import PrimaryMetric, Tally, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

MEAN_AP = PrimaryMetric("mean_ap", "mean average precision", lambda share, _: share)
R2 = PrimaryMetric("r2", "R2", lambda _share, _classes: 0.0)


@register("task", "multilabel", TaskConfig)
@dataclass(frozen=True, slots=True)
class MultiLabel:
    """Multilabel classification; the primary metric is the mean of the classes' average precisions.

    It is scikit-learn's `average_precision_score(average="macro")` over the classes that some evaluated image
    has. Its chance level is the mean over these classes of the share of images with the class.
    """

    headline: ClassVar[PrimaryMetric] = MEAN_AP
    config: TaskConfig = field(default_factory=TaskConfig)
    classes: tuple[str, ...] = ()
    """Sets of class names, by label."""
    label_smoothing: float = 0.0
    _there: NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    """[sets, classes]: 1 where a set contains the class."""

    def __post_init__(self) -> None:
        _refuse_smoothing(self.label_smoothing, "multilabel")
        object.__setattr__(self, "_there", multi_hot(self.classes))
        if self.classes and not members_of(self.classes):
            raise ConfigError(
                "task=multilabel: no image has a class; wanted sets of names, as dataset=table makes them "
                "with dataset.columns.kind=several."
            )

    @property
    def num_outputs(self) -> int:
        """One output per class."""
        return self._there.shape[1]

    def majority_share_of(self, counts: NDArray[np.int64]) -> float | None:
        """Return the mean over classes of the share of images with the class; `counts` is [sets]."""
        there = counts @ self._there
        return float(there[there > 0].mean() / counts.sum()) if there.any() else None

    def target(self, labels: Tensor) -> Tensor:
        """Return float32 [B, classes], 1 where an image has the class."""
        return torch.from_numpy(self._there)[labels.cpu()].to(labels.device).float()

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the binary cross-entropy of logits [B, classes], averaged over images and classes."""
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs, target)

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Record every image's scores and classes."""
        totals = {"loss": self.loss(outputs, target).item() * len(target), "num_images": len(target)}
        values = {"score": outputs.float().cpu().numpy(), "there": target.bool().cpu().numpy()}
        return Tally(totals, values)

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Return `val_loss`, `val_mean_ap`, and `val_average_precision` by class (None: no image has it).

        Raises:
            RunError: no image has any class.
        """
        import numpy as np

        scores, there = tally.values["score"], tally.values["there"]
        once = np.ones((1, len(there)))
        found = [float(average_precision(scores[:, i], there[:, i], once)[0]) for i in range(there.shape[1])]
        known = [value for value in found if not math.isnan(value)]
        if not known:
            raise RunError(
                f"mean average precision is undefined: none of {len(there)} images has a class. Evaluate "
                "more (dataset.max_val_images; for tuning: dataset.max_tune_images), or use another task."
            )
        by_class = {
            name: None if math.isnan(value) else value
            for name, value in zip(members_of(self.classes), found, strict=True)
        }
        return {
            "val_loss": tally.totals["loss"] / tally.totals["num_images"],
            "val_mean_ap": sum(known) / len(known),
            "val_average_precision": by_class,
        }


def average_precision(
    scores: NDArray[Any], positive: NDArray[Any], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the average precision of ranking by score under each row of weights; NaN without positives.

    Equal scores are one step of the curve, as in scikit-learn.

    Args:
        scores: [N].
        positive: Booleans [N].
        weights: [R, N].

    Returns:
        float64 [R].
    """
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) != 0])  # of equal values
    gained, seen = (
        np.add.reduceat(given[:, order], starts, axis=1) for given in (weights * positive, weights)
    )
    hits, total = np.cumsum(gained, axis=1), np.cumsum(seen, axis=1)
    with np.errstate(invalid="ignore"):
        precision = np.where(total > 0, hits / total, 0.0)
        found: NDArray[np.float64] = (gained * precision).sum(1) / hits[:, -1]
    return found


@register("task", "regression", TaskConfig)
@dataclass(frozen=True, slots=True)
class Regression:
    """Regression; the primary metric is R2, the share of variance explained. Predicting the mean reaches 0.

    The network's single output is in standard deviations from the mean of the numbers that occur in the
    dataset. So the loss, a squared error, does not depend on the label's unit.
    """

    headline: ClassVar[PrimaryMetric] = R2
    config: TaskConfig = field(default_factory=TaskConfig)
    classes: tuple[str, ...] = ()
    """Numbers, by label."""
    label_smoothing: float = 0.0
    _scaled: NDArray[np.float32] = field(init=False, repr=False, compare=False)
    """[classes] deviations from the mean, in standard deviations."""
    _mean: float = field(init=False, repr=False, compare=False)
    _deviation: float = field(init=False, repr=False, compare=False)
    """Their standard deviation; 1 if it is 0."""

    def __post_init__(self) -> None:
        import numpy as np

        _refuse_smoothing(self.label_smoothing, "regression")
        for name in self.classes:
            if number_of(name) is None:
                raise ConfigError(
                    f"task=regression: {printable(name)!r} is not a number; wanted a label of numbers, as "
                    "dataset=table makes them with dataset.columns.kind=number."
                )
        numbers = np.array([float(name) for name in self.classes] or [0.0])
        deviation = float(numbers.std()) or 1.0
        object.__setattr__(self, "_mean", float(numbers.mean()))
        object.__setattr__(self, "_deviation", deviation)
        object.__setattr__(self, "_scaled", ((numbers - numbers.mean()) / deviation).astype(np.float32))

    @property
    def num_outputs(self) -> int:
        """One output."""
        return 1

    def majority_share_of(self, counts: NDArray[np.int64]) -> float | None:  # noqa: ARG002
        """Return None: the chance level does not depend on the labels."""
        return None

    def target(self, labels: Tensor) -> Tensor:
        """Return float32 [B]: deviations from the mean, in standard deviations."""
        return torch.from_numpy(self._scaled)[labels.cpu()].to(labels.device)

    def numbers(self, deviations: Tensor) -> Tensor:
        """Convert targets or outputs to float64 in the label's unit."""
        return deviations.double() * self._deviation + self._mean

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean squared error of outputs [B, 1]."""
        return torch.nn.functional.mse_loss(outputs[:, 0], target)

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Record every image's output and target."""
        totals = {"loss": self.loss(outputs, target).item() * len(target), "num_images": len(target)}
        said, wanted = outputs[:, 0].double().cpu().numpy(), target.double().cpu().numpy()
        return Tally(totals, {"said": said, "wanted": wanted})

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Return `val_loss`, `val_r2`, and `val_mae`, the mean absolute error in the label's unit.

        Raises:
            RunError: all evaluated images have the same number.
        """
        import numpy as np

        said, wanted = tally.values["said"], tally.values["wanted"]
        spread = float(((wanted - wanted.mean()) ** 2).sum())
        if spread == 0:
            raise RunError(
                f"R2 is undefined: all {len(wanted)} images have the same number; wanted different ones. "
                "Evaluate more (dataset.max_val_images; for tuning: dataset.max_tune_images), or use another "
                "task."
            )
        return {
            "val_loss": tally.totals["loss"] / tally.totals["num_images"],
            "val_r2": 1 - float(((said - wanted) ** 2).sum()) / spread,
            "val_mae": float(np.abs(said - wanted).mean()) * self._deviation,
        }


def num_named_classes(task: Task, num_values: int) -> int:
    """Return how many classes a title states for a label with `num_values` values; 0 for numbers."""
    if task.headline is R2:
        return 0
    return task.num_outputs if task.headline is MEAN_AP else num_values


def _refuse_smoothing(label_smoothing: float, task: str) -> None:
    require(label_smoothing == 0, "training.label_smoothing", label_smoothing, f"0 with task={task}")
