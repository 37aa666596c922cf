"""BatchNorm statistics recomputed on images other than the training images."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from pcr_exp.training.evaluate import has_running_statistics, renewed_statistics


@dataclass
class Images:
    images: Tensor
    labels: Tensor


def test_statistics_are_the_plain_mean_over_batches_and_come_back() -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [Images(torch.randn(8, 3, 4, 4, generator=generator) * 5 + 2, torch.zeros(8)) for _ in range(4)]
    model = nn.Sequential(nn.BatchNorm2d(3, momentum=0.1), nn.Dropout(0.5)).train()
    model(torch.full((8, 3, 4, 4), 100.0))  # what training saw has no part in the mean
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.get_rng_state()
    with renewed_statistics(model, model, batches):
        assert not model.training
        norm = model[0]
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None and norm.running_var is not None
        means = torch.stack([batch.images.mean((0, 2, 3)) for batch in batches]).mean(0)
        variances = torch.stack([batch.images.var((0, 2, 3)) for batch in batches]).mean(0)
        torch.testing.assert_close(norm.running_mean, means)
        torch.testing.assert_close(norm.running_var, variances)
    assert model.training and norm.momentum == 0.1
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())


def test_renewed_layers_do_not_follow_what_is_evaluated() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3)).train()
    norm = model[0]
    assert isinstance(norm, nn.BatchNorm2d)
    with renewed_statistics(model, model, [Images(torch.randn(8, 3, 4, 4), torch.zeros(8))]):
        assert norm.running_mean is not None
        renewed = norm.running_mean.clone()
        model(torch.full((8, 3, 4, 4), 9.0))
        assert torch.equal(norm.running_mean, renewed)


def test_they_come_back_after_an_error() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with (
        pytest.raises(RuntimeError),
        renewed_statistics(model, model, [Images(torch.ones(1, 5, 2, 2), torch.zeros(1))]),
    ):
        pass
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_layers_without_running_statistics_have_none() -> None:
    assert has_running_statistics(nn.Sequential(nn.BatchNorm2d(3)))
    assert not has_running_statistics(
        nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten())
    )
