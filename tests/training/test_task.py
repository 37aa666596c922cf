"""Metrics against torchmetrics and by hand; tallies of parts of the images join into the whole tally."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.functional as tm
from scipy import stats
from sklearn.metrics import roc_auc_score
from torch import Tensor

from pcr_exp.config.components import names
from pcr_exp.config.training import TaskConfig
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.training.task import (
    AUC,
    BALANCED_ACCURACY,
    MAX_RANKED_CLASSES,
    TOP1,
    BalancedClassification,
    Classification,
    Task,
    TwoClasses,
    area_under_roc,
    joined,
    open_task,
    primary_metric_named,
    primary_metric_of,
    primary_metric_of_task,
)

DIAGNOSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
"""Classes of HAM10000, where two thirds of the images have one class."""


def unequal(num_images: int = 300, num_classes: int = 7) -> tuple[Tensor, Tensor]:
    """Return logits that are mostly right, and labels of which two thirds are the last class but one."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(num_classes, (num_images,), generator=generator)
    labels[: 2 * num_images // 3] = num_classes - 2
    logits = torch.randn(num_images, num_classes, generator=generator)
    logits[torch.arange(num_images), labels] += 1.5
    return logits, labels


def scores(task: Task, outputs: Tensor, labels: Tensor) -> dict[str, Any]:
    return task.metrics(task.tally(outputs, task.target(labels)))


def test_balanced_accuracy_and_recalls_are_those_of_torchmetrics() -> None:
    logits, labels = unequal()
    found = scores(BalancedClassification(classes=DIAGNOSES), logits, labels)
    recalls = tm.recall(logits, labels, task="multiclass", num_classes=7, average="none")
    assert list(found["val_recall"].values()) == pytest.approx(recalls.tolist())
    assert tuple(found["val_recall"]) == DIAGNOSES
    wanted = tm.accuracy(logits, labels, task="multiclass", num_classes=7, average="macro")
    assert found["val_balanced_accuracy"] == pytest.approx(wanted.item())
    assert found["val_top1"] == scores(Classification(), logits, labels)["val_top1"]


def test_always_saying_the_most_frequent_class_is_guessing() -> None:
    """Its top-1 is two thirds, but its balanced accuracy is only one in seven."""
    _, labels = unequal()
    logits = torch.zeros(300, 7)
    logits[:, 5] = 1
    found = scores(BalancedClassification(classes=DIAGNOSES), logits, labels)
    assert found["val_top1"] > 2 / 3
    assert found["val_balanced_accuracy"] == pytest.approx(1 / 7)
    assert BALANCED_ACCURACY.guessed(0.67, 7) == 1 / 7
    assert TOP1.guessed(0.67, 7) == 0.67
    assert AUC.guessed(0.9, 2) == 0.5


def test_a_class_without_an_image_has_no_recall_and_does_not_count() -> None:
    found = scores(BalancedClassification(), torch.eye(3)[[0, 0, 1]], torch.tensor([0, 0, 0]))
    assert found["val_recall"] == {"0": 2 / 3, "1": None, "2": None}
    assert found["val_balanced_accuracy"] == 2 / 3


@pytest.mark.parametrize("decimals", [6, 0])
def test_auc_is_that_of_torchmetrics_with_ties_and_without(decimals: int) -> None:
    """The label has two classes, like `smiling` in CelebA."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(2, (200,), generator=generator)
    margins = (torch.randn(200, generator=generator) + labels).round(decimals=decimals)
    found = scores(TwoClasses(classes=("no", "yes")), torch.stack([-margins / 2, margins / 2], dim=1), labels)
    wanted = tm.auroc(margins.sigmoid().double(), labels, task="binary")
    assert found["val_auc"] == pytest.approx(wanted.item())


def test_auc_of_several_classes_is_that_of_scikit_learn() -> None:
    logits, labels = unequal()
    found = scores(BalancedClassification(classes=DIAGNOSES), logits, labels)
    shares = logits.softmax(dim=1).numpy()
    wanted = roc_auc_score(labels, shares / shares.sum(axis=1, keepdims=True), multi_class="ovr")
    assert found["val_auc"] == pytest.approx(wanted, abs=1e-3), "of probabilities of 11 bits"
    there = labels != 3
    fewer = scores(BalancedClassification(classes=DIAGNOSES), logits[there], labels[there])["val_auc"]
    by_class = [roc_auc_score(labels[there] == i, shares[there][:, i]) for i in (0, 1, 2, 4, 5, 6)]
    assert fewer == pytest.approx(np.mean(by_class), abs=1e-3)
    assert scores(BalancedClassification(), torch.eye(3)[[0, 0]], torch.tensor([0, 0]))["val_auc"] is None


def test_probabilities_of_many_classes_are_not_kept() -> None:
    labels = torch.arange(MAX_RANKED_CLASSES + 1)
    assert "val_auc" not in scores(BalancedClassification(), torch.eye(len(labels)), labels)


def test_auc_of_one_class_is_refused() -> None:
    with pytest.raises(
        RunError, match="AUC is undefined for 0 images of the second class and 3 of the first"
    ):
        area_under_roc(np.zeros(3), np.zeros(3, dtype=bool))


def test_auc_of_half_precision_is_that_of_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if ranks have the dtype of the scores, as in SciPy 1.18, which needs Python 3.12."""
    whole = stats.rankdata
    monkeypatch.setattr(stats, "rankdata", lambda scores: whole(scores).astype(scores.dtype))
    rng = np.random.default_rng(0)
    positive, scores = rng.random(3000) < 0.3, rng.random(3000).astype(np.float16)
    assert area_under_roc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-9)


@pytest.mark.parametrize("task", [Classification(), BalancedClassification(), TwoClasses()])
def test_processes_that_evaluate_shares_join_to_exactly_what_one_would_find(task: Task) -> None:
    logits, labels = unequal(num_classes=2) if isinstance(task, TwoClasses) else unequal()
    shares = [task.tally(logits[rank::3], labels[rank::3]) for rank in range(3)]
    together, alone = task.metrics(joined(shares)), scores(task, logits, labels)
    assert together.pop("val_loss") == pytest.approx(
        alone.pop("val_loss")
    )  # a sum of floats depends on its order
    assert together == alone
    assert alone[f"val_{task.headline.name}"] is not None


def test_label_smoothing_is_of_the_training_loss_alone() -> None:
    logits, labels = unequal()
    plain, smooth = Classification(), Classification(label_smoothing=0.2)
    assert smooth.loss(logits, labels) > plain.loss(logits, labels)
    assert scores(smooth, logits, labels) == scores(plain, logits, labels)
    assert math.isclose(
        scores(plain, logits, labels)["val_loss"], plain.loss(logits, labels).item(), rel_tol=1e-6
    )


def test_losses_of_images_are_without_label_smoothing() -> None:
    logits, labels = unequal()
    plain, smooth = (Classification(label_smoothing=s).tally(logits, labels).values["loss"] for s in (0, 0.2))
    assert np.array_equal(plain, smooth)


def test_five_classes_have_a_top5() -> None:
    assert scores(Classification(), *unequal(num_classes=5))["val_top5"] == 1
    assert scores(Classification(), *unequal(num_classes=4))["val_top5"] is None


def test_tasks_are_opened_by_name() -> None:
    assert primary_metric_of(TaskConfig()) is TOP1
    kinds = {"auc": TwoClasses, "balanced": BalancedClassification, "classification": Classification}
    assert names("task") == [*kinds, "multilabel", "regression"]
    for name, kind in kinds.items():
        task = open_task(TaskConfig(name=name), ["no", "yes"], 0.1)
        assert (type(task), task.headline) == (kind, primary_metric_of_task(name))
        assert primary_metric_named(task.headline.name) is task.headline
    with pytest.raises(ConfigError, match=r"task\.name='taste': wanted auc or balanced or classification"):
        TaskConfig(name="taste")
    assert primary_metric_of_task("taste") is None
    with pytest.raises(ConfigError, match="task=auc: the training label has 7 classes; wanted a label"):
        open_task(TaskConfig(name="auc"), DIAGNOSES)


def test_a_headline_that_is_not_known_here_has_plain_words_and_no_guess() -> None:
    headline = primary_metric_named("mean_iou")
    assert (headline.words, headline.guessed(0.5, 2)) == ("mean iou", None)
