"""Predicted against measured standard deviations of errors in weight gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pcr_exp.activations.keep import acceptable_sigma, exact_sensitivity, paper_sensitivity
from pcr_exp.activations.packed import pack
from pcr_exp.activations.quantise import QuantiseCodec


def weight_gradient_errors(bound: float, size_px: int, padding: int) -> tuple[Tensor, Tensor, float]:
    """Return a weight gradient's errors [K, C, 3, 3], the output gradient G [N, K, H, W], nonzero share R."""
    torch.manual_seed(0)
    inputs = torch.randn(16, 32, size_px, size_px).relu()
    decoded = pack(inputs, QuantiseCodec(), bound).unpack()
    out_px = size_px - 2 + 2 * padding
    gradient = torch.randn(16, 24, out_px, out_px)

    def weight_gradient(values: Tensor) -> Tensor:
        return torch.nn.grad.conv2d_weight(values, (24, 32, 3, 3), gradient, padding=padding)

    return weight_gradient(decoded) - weight_gradient(inputs), gradient, float((inputs != 0).float().mean())


@pytest.mark.parametrize("bound", [0.1, 0.01, 0.001])
def test_the_exact_form_needs_no_calibration(bound: float) -> None:
    errors, gradient, share = weight_gradient_errors(bound, 16, padding=0)
    for channel in range(24):
        sigma = bound * exact_sensitivity(float(gradient[:, channel].norm()), share)
        assert float(errors[channel].std()) == pytest.approx(sigma, rel=0.15)  # 288 weights
    norm = math.sqrt(float(gradient.square().sum()) / 24)
    assert float(errors.std()) == pytest.approx(bound * exact_sensitivity(norm, share), rel=0.02)


def test_padding_takes_some_terms_away() -> None:
    errors, gradient, share = weight_gradient_errors(0.01, 14, padding=1)
    sigma = 0.01 * exact_sensitivity(math.sqrt(float(gradient.square().sum()) / 24), share)
    assert 0.93 * sigma < float(errors.std()) < sigma


def test_errors_are_normal() -> None:
    errors, _, _ = weight_gradient_errors(0.01, 16, padding=0)
    normalised = (errors / errors.std()).flatten()
    assert float(normalised.mean()) == pytest.approx(0, abs=0.05)
    assert float(normalised.pow(4).mean()) == pytest.approx(3, abs=0.2)
    assert float((normalised.abs() < 1).float().mean()) == pytest.approx(0.683, abs=0.02)


def test_the_paper_s_factor_is_no_constant() -> None:
    """For Gaussian gradients it is sqrt(H W pi / 6), which is 10.1 at 14 x 14; the paper has 0.32."""
    for size_px in (14, 28):
        gradient = torch.randn(8, 16, size_px, size_px)
        norm = math.sqrt(float(gradient.square().sum()) / 16)
        one = paper_sensitivity(float(gradient.abs().mean()), 8, 0.5, factor=1.0)
        assert exact_sensitivity(norm, 0.5) / one == pytest.approx(size_px * math.sqrt(math.pi / 6), rel=0.02)


def test_both_are_the_formulas() -> None:
    assert exact_sensitivity(6.0, 0.75) == pytest.approx(3.0)
    assert paper_sensitivity(0.5, 8, 0.5) == pytest.approx(0.32 * 0.5 * 2)
    assert exact_sensitivity(6.0, 0.0) == 0


def test_momentum_is_scaled_back_to_one_gradient() -> None:
    """With a constant gradient g, torch's momentum buffer approaches g / (1 - momentum)."""
    weight = torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    for _ in range(300):
        weight.grad = torch.tensor([0.2, -0.2, 0.2])
        sgd.step()
    mean_abs = float(sgd.state[weight]["momentum_buffer"].abs().mean())
    assert acceptable_sigma(mean_abs, 0.9, 0.01) == pytest.approx(0.002)


def test_functional_gradients_are_those_of_autograd() -> None:
    """The oracle used above agrees with autograd."""
    inputs, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3, requires_grad=True)
    gradient = torch.randn(2, 4, 6, 6)
    F.conv2d(inputs, weight, padding=1).backward(gradient)
    wanted = torch.nn.grad.conv2d_weight(inputs, weight.shape, gradient, padding=1)
    torch.testing.assert_close(weight.grad, wanted)
