"""Folding normalisation into convolutions does not change a network's outputs."""

import pytest
import torch
import torchvision
from torch import Tensor, nn

from pcr_exp.measuring.tolerance.features import folded


def num_norms(model: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def settled(model: nn.Module) -> nn.Module:
    """Return the model in evaluation mode, with running statistics unlike those of a new model."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features, generator=generator)
            module.running_var = torch.rand(module.num_features, generator=generator) + 0.5
    return model.eval()


def images() -> Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_one_convolution_and_its_normalisation(affine: bool, bias: bool) -> None:
    norm = nn.BatchNorm2d(4, affine=affine)
    model = settled(nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), norm, nn.ReLU()))
    found = folded(model, images())
    assert num_norms(found) == 0 and num_norms(model) == 1, "the model itself stays as it was"
    torch.testing.assert_close(found(images()), model(images()), rtol=1e-4, atol=1e-5)


def test_a_whole_network() -> None:
    torch.manual_seed(0)
    model = settled(torchvision.models.shufflenet_v2_x0_5())
    found = folded(model, images())
    assert num_norms(model) > 40 > 10 > num_norms(found)


class Twice(nn.Module):
    """Uses the convolution's output with and without normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        seen: Tensor = self.conv(inputs)
        return seen + self.norm(seen)


class TwoNorms(nn.Module):
    """Applies two normalisations to one output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.other = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        seen: Tensor = self.conv(inputs)
        return self.one(seen) - self.other(seen)


@pytest.mark.parametrize("kind", [Twice, TwoNorms])
def test_what_cannot_be_folded_stays(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = settled(kind())
    found = folded(model, images())
    torch.testing.assert_close(found(images()), model(images()))
    assert num_norms(found) == num_norms(model)


def test_normalisation_of_something_else_stays() -> None:
    model = settled(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)))
    assert num_norms(folded(model, images())) == 1
