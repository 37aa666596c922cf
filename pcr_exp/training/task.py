"""Tasks: targets, loss, validation metrics, and the primary metric (`headline`).

The loader gives images and integer labels. A task turns labels into targets for the loss, and scores models.
Training, runs and analysis take all metrics from the task and name none themselves. To add a task, write a
class with the attributes and methods of `Task`, and register it in the group `task` with its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.components import component, component_of, names, register
from pcr_exp.config.training import TaskConfig
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

TOP_K = 5
PER_IMAGE = ("label", "correct", "loss")
"""Per-image values of a tally, if its task saves a run's predictions: the class index, whether the model
predicts it, and the negative log-probability of that class."""
PROBABILITIES = "probabilities"
"""A further per-image value: the probability of every class, float16 [N, classes]."""
MAX_RANKED_CLASSES = 20
"""Most classes for which `task=balanced` saves all probabilities: 1,000 would take 2 kB per image."""


@dataclass(frozen=True, slots=True)
class PrimaryMetric:
    """The primary metric, for targets, times to a target, tables and figures; its best value is 1."""

    name: str
    """Its column in rows is `val_<name>`."""
    words: str
    """Display name, on axes and in tables."""
    guessed: Callable[[float | None, int | None], float | None] = lambda _share, _classes: None
    """Return the score of a model that has learned nothing, or None if unknown. Takes the result of
    `Task.majority_share_of`, such as the share of the most frequent class, and the number of outputs."""


TOP1 = PrimaryMetric("top1", "top-1", lambda share, _: share)
BALANCED_ACCURACY = PrimaryMetric(
    "balanced_accuracy", "balanced accuracy", lambda _, classes: 1 / classes if classes else None
)
AUC = PrimaryMetric("auc", "AUC", lambda _share, _classes: 0.5)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums and per-image values of evaluated images, from which metrics are computed.

    Tallies of batches, and of processes that evaluated different images, are joined exactly: sums are added,
    per-image values are concatenated.
    """

    totals: Mapping[str, Any]
    """Sums over images: numbers, or arrays with one number per class."""
    values: Mapping[str, NDArray[Any]]
    """Arrays with one entry per image: for metrics that sums cannot give, and PER_IMAGE, which runs save."""


def joined(tallies: Sequence[Tally]) -> Tally:
    """Join one or more tallies into that of all their images; sums are added in the given order."""
    import numpy as np  # not needed to compose a configuration, which imports this module

    first, *others = tallies
    totals = dict(first.totals)
    for other in others:
        totals = {key: total + other.totals[key] for key, total in totals.items()}
    return Tally(
        totals, {key: np.concatenate([part.values[key] for part in tallies]) for key in first.values}
    )


class Task(Protocol):
    """Interface of a task for training, evaluation, runs and analysis.

    The class itself is registered. It is called with its settings, the names of the label's classes by
    index, and the label smoothing of the training loss.
    """

    headline: ClassVar[PrimaryMetric]

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the network."""

    def majority_share_of(self, counts: NDArray[np.int64]) -> float | None:
        """Return the share to pass to `PrimaryMetric.guessed`, from the images per label, [labels]."""

    def target(self, labels: Tensor) -> Tensor:
        """Turn labels, int64 [B] on any device, into the targets of `loss` and `tally`."""

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of a batch, which training minimises."""

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Return the tally of a validation batch; all tallies of a task have the same keys."""

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Compute `val_loss`, and `val_<name>` for every metric, including the primary one.

        A metric is a number in [0, 1] (`val_r2` may be lower, `val_mae` higher), None if it is not defined,
        or a dict of these by class.
        """


@register("task", "classification", TaskConfig)
@dataclass(frozen=True, slots=True)
class Classification:
    """Single-label classification; the primary metric is the share of images classified correctly."""

    headline: ClassVar[PrimaryMetric] = TOP1
    config: TaskConfig = field(default_factory=TaskConfig)
    classes: tuple[str, ...] = ()
    """Class names, by label; only metrics by class need them."""
    label_smoothing: float = 0.0

    @property
    def num_outputs(self) -> int:
        """One output per class."""
        return len(self.classes)

    def majority_share_of(self, counts: NDArray[np.int64]) -> float | None:
        """Return the share of the most frequent class; None if there are no images."""
        return float(counts.max() / counts.sum()) if counts.sum() else None

    def target(self, labels: Tensor) -> Tensor:
        """Return the class indices unchanged."""
        return labels

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of logits [B, classes] with class indices [B], with label smoothing."""
        return torch.nn.functional.cross_entropy(outputs, target, label_smoothing=self.label_smoothing)

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Count hits and record PER_IMAGE; the loss is cross-entropy without label smoothing."""
        num_classes = outputs.shape[1]
        hits = outputs.topk(min(TOP_K, num_classes), dim=1).indices == target[:, None]
        losses = torch.nn.functional.cross_entropy(outputs, target, reduction="none")
        totals = {
            "loss": torch.nn.functional.cross_entropy(outputs, target, reduction="sum").item(),
            "num_images": len(target),
            "num_top5": int(hits.sum()),
            "num_hits": target[hits[:, 0]].bincount(minlength=num_classes).cpu().numpy(),
            "num_of_class": target.bincount(minlength=num_classes).cpu().numpy(),
        }
        values = {"label": target, "correct": hits[:, 0], "loss": losses.float()}
        return Tally(totals, {name: value.cpu().numpy() for name, value in values.items()})

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Return `val_loss` (mean per image), `val_top1` and `val_top5` (None for fewer than 5 classes)."""
        total = tally.totals
        num_images = total["num_images"]
        return {
            "val_loss": total["loss"] / num_images,
            "val_top1": int(total["num_hits"].sum()) / num_images,
            "val_top5": total["num_top5"] / num_images if len(total["num_hits"]) >= TOP_K else None,
        }


@register("task", "balanced", TaskConfig)
@dataclass(frozen=True, slots=True)
class BalancedClassification(Classification):
    """Classification with equally weighted classes; the primary metric is the mean of their recalls.

    As in scikit-learn's `balanced_accuracy_score`, classes without an evaluated image are left out of the
    mean. Up to MAX_RANKED_CLASSES, there is also `val_auc`, the mean over classes of each class against the
    rest, as in `roc_auc_score(multi_class="ovr", average="macro")`.
    """

    headline: ClassVar[PrimaryMetric] = BALANCED_ACCURACY

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Record PROBABILITIES too, up to MAX_RANKED_CLASSES classes."""
        counted = Classification.tally(self, outputs, target)
        if outputs.shape[1] > MAX_RANKED_CLASSES:
            return counted
        shares = torch.softmax(outputs.float(), dim=1).half().cpu().numpy()
        return Tally(counted.totals, {**counted.values, PROBABILITIES: shares})

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Add `val_balanced_accuracy`, `val_auc`, and `val_recall` by class name (None without images)."""
        hits, counts = tally.totals["num_hits"].tolist(), tally.totals["num_of_class"].tolist()
        names = self.classes or [str(number) for number in range(len(counts))]
        recalls = [hit / count if count else None for hit, count in zip(hits, counts, strict=True)]
        known = [recall for recall in recalls if recall is not None]
        return {
            **Classification.metrics(self, tally),
            "val_balanced_accuracy": sum(known) / len(known),
            "val_recall": dict(zip(names, recalls, strict=True)),
            **({"val_auc": mean_auc(tally)} if PROBABILITIES in tally.values else {}),
        }


def mean_auc(tally: Tally) -> float | None:
    """Return the mean over classes of their AUC against the rest; None if all images are of one class.

    Classes without an evaluated image are left out of the mean.
    """
    labels, scores = tally.values["label"], tally.values[PROBABILITIES]
    there = [number for number in range(scores.shape[1]) if 0 < (labels == number).sum() < len(labels)]
    areas = [area_under_roc(scores[:, number], labels == number) for number in there]
    return sum(areas) / len(areas) if areas else None


@register("task", "auc", TaskConfig)
@dataclass(frozen=True, slots=True)
class TwoClasses(Classification):
    """Binary classification; the primary metric is the area under the ROC curve."""

    headline: ClassVar[PrimaryMetric] = AUC

    def __post_init__(self) -> None:
        if len(self.classes) not in (0, 2):
            raise ConfigError(
                f"task=auc: the training label has {len(self.classes)} classes; wanted a label with two "
                "(dataset.label). For more classes use task=balanced or task=classification."
            )

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Record the margin of the second class over the first for every image."""
        margins = (outputs[:, 1].double() - outputs[:, 0].double()).cpu().numpy()
        counted = Classification.tally(self, outputs, target)
        return Tally(counted.totals, {**counted.values, "margin": margins})

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Add `val_auc`.

        Raises:
            RunError: one of the classes has no images.
        """
        auc = area_under_roc(tally.values["margin"], tally.values["label"] == 1)
        return {**Classification.metrics(self, tally), "val_auc": auc}


def area_under_roc(scores: NDArray[Any], positive: NDArray[np.bool_]) -> float:
    """Return the probability that a positive scores above a negative; ties count half (Mann, Whitney 1947).

    Args:
        scores: Real numbers [N].
        positive: Booleans [N].

    Raises:
        RunError: all are positive, or none is.
    """
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    if num_positive == 0 or num_negative == 0:
        raise RunError(
            f"AUC is undefined for {num_positive} images of the second class and {num_negative} of the "
            "first: wanted some of both among the evaluated images. Evaluate more (dataset.max_val_images; "
            "for tuning: dataset.max_tune_images), or use another task."
        )
    from scipy.stats import rankdata  # takes a second to import

    # From SciPy 1.18 on, ranks have the type of the scores, and a sum in float16 overflows above 65,504.
    rank_sum = float(rankdata(scores.astype("float64"))[positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def open_task(config: TaskConfig, classes: Sequence[str] = (), label_smoothing: float = 0.0) -> Task:
    """Build the configured task.

    Args:
        config: Settings of the group `task`.
        classes: Names of the label's classes, by index.
        label_smoothing: Label smoothing of the training loss.

    Raises:
        ConfigError: the task does not exist, or does not suit the classes.
    """
    task: Task = component_of("task", config)[1].build(config, tuple(classes), label_smoothing)
    return task


def primary_metric_of(config: TaskConfig) -> PrimaryMetric:
    """Return a task's primary metric. Raises ConfigError if the task does not exist."""
    kind: Any = component_of("task", config)[1].build
    headline: PrimaryMetric = kind.headline
    return headline


def primary_metric_of_task(name: str) -> PrimaryMetric | None:
    """Return the primary metric of the task with this name; None if the task is unknown."""
    kind: Any = component("task", name).build if name in names("task") else None
    return kind and kind.headline


def primary_metric_named(name: str) -> PrimaryMetric:
    """Return the primary metric named in a run's manifest; an unknown one is displayed by its plain name."""
    for task in names("task"):
        headline = primary_metric_of_task(task)
        if headline is not None and headline.name == name:
            return headline
    return PrimaryMetric(name, name.replace("_", " "))


def target_of(config: TrainConfig) -> float:
    """Return the target for time measurements that the dataset declares for the task's primary metric.

    Raises:
        ConfigError: the dataset declares none.
    """
    headline, targets = primary_metric_of(config.task).name, config.dataset.targets
    if headline not in targets:
        raise ConfigError(
            f"dataset.targets={dict(targets)}: task={config.task.name} is evaluated by {headline}, which has "
            f"no target. Declare one before any run, such as +dataset.targets.{headline}=0.8."
        )
    return float(targets[headline])
