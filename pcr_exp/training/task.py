"""Tasks: a label's target, the loss, the metrics of validation, and the primary metric (the headline).

The loader gives images and integer labels; a task turns labels into what the loss compares with, and says how
good a model is. Training, runs and analysis ask the task, and name no metric themselves. To add one, write a
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
"""Values of a tally for every image, if its task wants a run's predictions kept: the class index,
whether the model names it, and minus the logarithm of the probability that the model gives it."""
PROBABILITIES = "probabilities"
"""A further one: the probability of every class, float16 [N, classes]."""
MAX_RANKED_CLASSES = 20
"""Up to so many classes `task=balanced` keeps all probabilities: of 1,000 they would take 2 kB an image."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The metric that targets, times to a target, tables and figures are about: at best 1."""

    name: str
    """Rows hold it as `val_<name>`."""
    words: str
    """For people: on axes and in tables."""
    guessed: Callable[[float | None, int | None], float | None] = lambda _share, _classes: None
    """The chance level, of a model that has learned nothing, given `guessing_share` (of the most frequent
    class) and its number of outputs; None where it is not known."""


TOP1 = Headline("top1", "top-1", lambda share, _: share)
BALANCED_ACCURACY = Headline(
    "balanced_accuracy", "balanced accuracy", lambda _, classes: 1 / classes if classes else None
)
AUC = Headline("auc", "AUC", lambda _share, _classes: 0.5)


@dataclass(frozen=True, slots=True)
class Tally:
    """The sums and values of evaluated images, from which metrics are made.

    Tallies of batches, and of processes that evaluated different images, are joined exactly: counts are
    added, values are kept one by one.
    """

    totals: Mapping[str, Any]
    """Sums over images: numbers, or arrays of one number per class."""
    values: Mapping[str, NDArray[Any]]
    """Arrays of one entry per image: for metrics that no sum can give, and the PER_IMAGE that runs keep."""


def joined(tallies: Sequence[Tally]) -> Tally:
    """Return the tally of all images behind at least one tally; sums are added in the given order."""
    import numpy as np  # not needed to compose a configuration, which imports this module

    first, *others = tallies
    totals = dict(first.totals)
    for other in others:
        totals = {key: total + other.totals[key] for key, total in totals.items()}
    return Tally(
        totals, {key: np.concatenate([part.values[key] for part in tallies]) for key in first.values}
    )


class Task(Protocol):
    """A task, as training, evaluation, runs and analysis use it.

    Its class is what is registered: called with its settings, the names of the label's classes by number, and
    the label smoothing of the training loss.
    """

    headline: ClassVar[Headline]

    @property
    def num_outputs(self) -> int:
        """How many outputs the network has."""

    def guessing_share(self, counts: NDArray[np.int64]) -> float | None:
        """Return the share that `Headline.guessed` is told, of the evaluated images' [labels] numbers."""

    def target(self, labels: Tensor) -> Tensor:
        """Turn labels, int64 [B] on any device, into what `loss` and `tally` compare outputs with."""

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of a batch, as training minimises it."""

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Return what a validation batch contributes; all tallies of a task have the same keys."""

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Finish a tally: `val_loss`, and `val_<name>` for every metric, the headline among them.

        A metric is a number in [0, 1] (`val_r2` may be lower, `val_mae` higher), None where it is not
        defined, or a dict of these by class.
        """


@register("task", "classification", TaskConfig)
@dataclass(frozen=True, slots=True)
class Classification:
    """One of several classes, judged by the share of images that the model gets right."""

    headline: ClassVar[Headline] = TOP1
    config: TaskConfig = field(default_factory=TaskConfig)
    classes: tuple[str, ...] = ()
    """Names, by label; only metrics by class need them."""
    label_smoothing: float = 0.0

    @property
    def num_outputs(self) -> int:
        """One for each class."""
        return len(self.classes)

    def guessing_share(self, counts: NDArray[np.int64]) -> float | None:
        """Return the share of the most frequent class; None: there is no image."""
        return float(counts.max() / counts.sum()) if counts.sum() else None

    def target(self, labels: Tensor) -> Tensor:
        """Return the class indices as they are."""
        return labels

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of logits [B, classes] with class indices [B], label smoothing included."""
        return torch.nn.functional.cross_entropy(outputs, target, label_smoothing=self.label_smoothing)

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Count hits, and keep PER_IMAGE; the loss is cross-entropy without label smoothing."""
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
        """`val_loss`, mean per image; `val_top1`; `val_top5`, which is None for fewer than 5 classes."""
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
    """Classes count alike, however many images they have: the mean of the classes' recalls.

    As scikit-learn's `balanced_accuracy_score`: classes without an evaluated image do not enter the mean. Up
    to MAX_RANKED_CLASSES also `val_auc`: each class against the rest, the mean over classes, as
    `roc_auc_score(multi_class="ovr", average="macro")`.
    """

    headline: ClassVar[Headline] = BALANCED_ACCURACY

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Keep PROBABILITIES, where there are few classes."""
        counted = Classification.tally(self, outputs, target)
        if outputs.shape[1] > MAX_RANKED_CLASSES:
            return counted
        shares = torch.softmax(outputs.float(), dim=1).half().cpu().numpy()
        return Tally(counted.totals, {**counted.values, PROBABILITIES: shares})

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Add `val_balanced_accuracy`, `val_auc` and `val_recall` by class name (None: no image of it)."""
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
    """The AUC of each class against the rest, the mean over classes; None if all images are of one class.

    Classes without an evaluated image do not enter the mean.
    """
    labels, scores = tally.values["label"], tally.values[PROBABILITIES]
    there = [number for number in range(scores.shape[1]) if 0 < (labels == number).sum() < len(labels)]
    areas = [area_under_roc(scores[:, number], labels == number) for number in there]
    return sum(areas) / len(areas) if areas else None


@register("task", "auc", TaskConfig)
@dataclass(frozen=True, slots=True)
class TwoClasses(Classification):
    """Two classes, judged by how well the outputs rank them: the area under the ROC curve."""

    headline: ClassVar[Headline] = AUC

    def __post_init__(self) -> None:
        if len(self.classes) not in (0, 2):
            raise ConfigError(
                f"task=auc: the label that is trained on has {len(self.classes)} classes; wanted a label of "
                "two, as dataset.label. For more classes use task=balanced or task=classification."
            )

    def tally(self, outputs: Tensor, target: Tensor) -> Tally:
        """Keep the margin of the second class over the first, of every image."""
        margins = (outputs[:, 1].double() - outputs[:, 0].double()).cpu().numpy()
        counted = Classification.tally(self, outputs, target)
        return Tally(counted.totals, {**counted.values, "margin": margins})

    def metrics(self, tally: Tally) -> dict[str, Any]:
        """Add `val_auc`.

        Raises:
            RunError: there are no images of one of the classes.
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
            f"AUC of {num_positive} images of the second class and {num_negative} of the first: wanted some "
            "of both among the evaluated images. Evaluate more (dataset.max_val_images; to tune by: "
            "dataset.max_tune_images), or use another task."
        )
    from scipy.stats import rankdata  # takes a second to import

    # SciPy from 1.18 on gives ranks the type of the scores, and a sum of them in float16 ends at 65,504.
    rank_sum = float(rankdata(scores.astype("float64"))[positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def open_task(config: TaskConfig, classes: Sequence[str] = (), label_smoothing: float = 0.0) -> Task:
    """Make the task that the configuration names.

    Args:
        config: The group `task`.
        classes: Names of the label's classes, by number.
        label_smoothing: Of the training loss.

    Raises:
        ConfigError: there is no such task, or it does not suit the classes.
    """
    task: Task = component_of("task", config)[1].build(config, tuple(classes), label_smoothing)
    return task


def headline_of(config: TaskConfig) -> Headline:
    """Return what a task is judged by. Raises ConfigError if there is no such task."""
    kind: Any = component_of("task", config)[1].build
    headline: Headline = kind.headline
    return headline


def headline_of_task(name: str) -> Headline | None:
    """Return what the task of this name is judged by; None of a task that is not known here."""
    kind: Any = component("task", name).build if name in names("task") else None
    return kind and kind.headline


def headline_called(name: str) -> Headline:
    """Return the headline that a run's manifest names; that of a task not known here has plain words."""
    for task in names("task"):
        headline = headline_of_task(task)
        if headline is not None and headline.name == name:
            return headline
    return Headline(name, name.replace("_", " "))


def target_of(config: TrainConfig) -> float:
    """Return the share that time is measured to, as the dataset declares it for the task's headline.

    Raises:
        ConfigError: the dataset declares none.
    """
    headline, targets = headline_of(config.task).name, config.dataset.targets
    if headline not in targets:
        raise ConfigError(
            f"dataset.targets={dict(targets)}: task={config.task.name} is judged by {headline}; declare what "
            f"it is to reach, before any run, such as +dataset.targets.{headline}=0.8."
        )
    return float(targets[headline])
