"""Scores against torchmetrics and plain cross-entropy."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
import torchmetrics.functional as tm
from torch import Tensor, nn

from pcr_exp.training.evaluate import evaluate
from pcr_exp.training.task import Classification


@dataclass
class Images:
    images: Tensor
    labels: Tensor


def batches(logits: Tensor, labels: Tensor, size: int) -> Iterator[Images]:
    """Yield batches whose `images` are already logits."""
    for start in range(0, len(labels), size):
        yield Images(logits[start : start + size], labels[start : start + size])


def identity(images: Tensor) -> Tensor:
    return images


@pytest.fixture
def scored() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(50, 9, generator=generator), torch.randint(9, (50,), generator=generator)


@pytest.mark.parametrize("size", [50, 16, 7, 1])
def test_scores_do_not_depend_on_how_images_are_batched(scored: tuple[Tensor, Tensor], size: int) -> None:
    logits, labels = scored
    scores = evaluate(nn.Identity(), identity, Classification(), batches(logits, labels, size))
    assert scores["val_loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-6)
    for k in (1, 5):
        wanted = tm.accuracy(logits, labels, task="multiclass", num_classes=9, average="micro", top_k=k)
        assert scores[f"val_top{k}"] == pytest.approx(wanted.item())
    assert scores["num_val"] == 50


def test_top5_of_fewer_than_five_classes_is_none() -> None:
    logits, labels = torch.eye(4), torch.tensor([0, 1, 2, 0])
    scores = evaluate(nn.Identity(), identity, Classification(), batches(logits, labels, 3))
    assert (scores["val_top1"], scores["val_top5"]) == (0.75, None)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_scores_in_eval_mode_and_comes_back_as_it_was(training: bool) -> None:
    model = nn.Dropout(0.5).train(training)
    modes = []

    def forward(images: Tensor) -> Tensor:
        modes.append(model.training)
        return model(images)

    evaluate(model, forward, Classification(), batches(torch.eye(6), torch.arange(6), 6))
    assert modes == [False]
    assert model.training is training


def test_no_images_is_an_error() -> None:
    with pytest.raises(ValueError, match="validation split gave no images"):
        evaluate(nn.Identity(), identity, Classification(), [])
