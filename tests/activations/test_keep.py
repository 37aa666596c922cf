"""Saved activations of a training: measurements, adapted bounds, state, and refused settings."""

import math
from typing import Any

import pytest
import torch
from activation_models import chain_model, forward_and_backward, images, residual_model
from torch import nn

from pcr_exp.activations.codec import LosslessCodec
from pcr_exp.activations.hooks import convolutions
from pcr_exp.activations.keep import (
    Bounds,
    CompressedActivations,
    LayerState,
    Untracked,
    open_activations,
    open_codec,
)
from pcr_exp.activations.quantise import QuantiseCodec, QuantiseConfig
from pcr_exp.activations.recompute import blocks
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.distributed.exchange import Exchange
from pcr_exp.training.trainer import Trainer


def sgd(model: nn.Module, momentum: float = 0.9) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)


def error_bounded(**changes: Any) -> ActivationsConfig:
    return QuantiseConfig(**{"interval": 2, **changes})


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, activations: Any, steps: range, scale: float = 1.0
) -> None:
    for step in steps:
        activations.begin(step)
        model.zero_grad()
        (model(images(4, 12, seed=step)).square().mean() * scale).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= scale
        optimizer.step()
        activations.end(step, scale)


def state(**changes: float) -> LayerState:
    fields: dict[str, Any] = {
        "nonzero_share": 0.75,
        "gradient_norm": 2.0,
        "mean_abs_gradient": 0.5,
        "batch_size": 12,
        "mean_abs_momentum": 4.0,
    }
    return LayerState(**{**fields, **changes})


def test_a_bound_makes_the_error_just_acceptable() -> None:
    exact = Bounds(error_bounded(), momentum=0.9)
    assert exact.of("a") == 1e-4
    exact.adapt({"a": state()}, {})
    assert exact.of("a") * 2.0 * math.sqrt(0.75 / 3) == pytest.approx(0.01 * 0.1 * 4.0)
    paper = Bounds(error_bounded(error_model="paper", paper_factor=0.32), momentum=0.9)
    paper.adapt({"a": state()}, {})
    assert paper.of("a") * 0.32 * 0.5 * math.sqrt(12 * 0.75) == pytest.approx(0.01 * 0.1 * 4.0)


@pytest.mark.parametrize(
    "useless",
    [
        {"gradient_norm": 0.0},
        {"nonzero_share": 0.0},
        {"mean_abs_momentum": 0.0},
        {"gradient_norm": math.inf},
        {"gradient_norm": math.nan},
        {"mean_abs_momentum": math.inf},
        {"mean_abs_momentum": math.nan},
    ],
)
def test_a_look_that_says_nothing_changes_nothing(useless: dict[str, float]) -> None:
    bounds = Bounds(error_bounded(), momentum=0.9)
    bounds.adapt({"a": state(**useless)}, {})
    assert bounds.of("a") == 1e-4


def test_layers_that_share_an_input_share_the_smaller_bound() -> None:
    bounds = Bounds(error_bounded(), momentum=0.9)
    states = {"a": state(), "b": state(gradient_norm=20.0), "c": state(gradient_norm=1.0)}
    bounds.adapt(states, {"b": "a", "c": "a"})
    assert bounds.of("a") == bounds.of("b") == bounds.of("c") == pytest.approx(0.0004)


def test_fixed_bounds_stay() -> None:
    bounds = Bounds(error_bounded(bounds="fixed", initial_bound=0.5), momentum=0.0)
    bounds.adapt({"a": state()}, {})
    assert bounds.of("a") == 0.5


def test_looks_come_every_interval_and_bounds_move_from_the_second_on() -> None:
    model = residual_model()
    optimizer = sgd(model)
    activations = open_activations(error_bounded(), model, optimizer)
    train(model, optimizer, activations, range(5))
    by_step = {
        step: {row["layer"]: row for row in activations.history if row["step"] == step} for step in (0, 2, 4)
    }
    assert len(activations.history) == 3 * len(convolutions(model))
    assert {row["bound"] for row in (*by_step[0].values(), *by_step[2].values())} == {1e-4}
    for layer, row in by_step[4].items():
        before = by_step[2][layer]
        wanted = before["bound"] * before["acceptable_sigma"] / before["predicted_sigma"]
        assert row["bound"] <= wanted * (1 + 1e-9)
        assert row["held_bytes"] == 0
        if layer.endswith("shortcut"):  # it shares the input of conv1
            assert (row["raw_bytes"], row["bound"]) == (
                0,
                by_step[4][layer.replace("shortcut", "conv1")]["bound"],
            )
        else:
            assert 0 < row["packed_bytes"] < row["raw_bytes"]


def test_predicted_deviations_are_those_of_the_gradients() -> None:
    model = residual_model()
    plain = forward_and_backward(model, images(32, 24))
    fixed = error_bounded(bounds="fixed", initial_bound=0.02)
    activations = open_activations(fixed, model, sgd(model))
    activations.begin(0)
    lossy = forward_and_backward(model, images(32, 24))
    activations.end(0, 1.0)
    rows = {row["layer"]: row for row in activations.history}
    for layer in ("0", "4.conv1", "5.conv1"):  # batch norm follows and removes the mean of an error
        name = f"{layer}.weight"
        measured = float((lossy.gradients[name] - plain.gradients[name]).square().mean().sqrt())
        # Padding removes some terms, and the layers have only 216 and 576 weights.
        assert measured == pytest.approx(rows[layer]["predicted_sigma"], rel=0.2)


class OneOf(Exchange):
    """The part of one among several processes, which sends nothing."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size

    @property
    def world_size(self) -> int:
        return self._world_size


def mean_gradients(config: ActivationsConfig, num_parts: int, world_size: int) -> tuple[Any, list[Any]]:
    """Return the mean over processes of convolutions' gradients in one update, and the last one's rows."""
    training = TrainingConfig(epochs=1, batch_size=8, image_size=24, eval_image_size=24, learning_rate=0.1)
    generator = torch.Generator().manual_seed(0)
    sums: dict[str, torch.Tensor] = {}
    for rank in range(world_size):
        model = residual_model()
        trainer = Trainer(
            model,
            training,
            device=torch.device("cpu"),
            seed=0,
            activations=config,
            exchange=OneOf(world_size),
        )
        for part in range(num_parts):
            images = torch.randint(256, (8, 24, 24, 3), dtype=torch.uint8, generator=generator)
            labels = torch.randint(5, (8,), generator=generator)
            which = {"slot": rank * num_parts + part, "part": part, "num_parts": num_parts}
            trainer.update(images, labels, step=0, learning_rate=0.1, **which)
        for name, conv in convolutions(model).items():
            assert conv.weight.grad is not None
            sums[name] = sums.get(name, 0) + conv.weight.grad / world_size
    return sums, trainer.activations.history


@pytest.mark.parametrize(("num_parts", "world_size"), [(1, 1), (4, 1), (16, 1), (1, 4), (2, 2)])
def test_predicted_deviations_are_those_of_the_mean_over_micro_batches(
    num_parts: int, world_size: int
) -> None:
    plain, _ = mean_gradients(ActivationsConfig(), num_parts, world_size)
    fixed = error_bounded(bounds="fixed", initial_bound=0.02)
    lossy, history = mean_gradients(fixed, num_parts, world_size)
    predicted = {row["layer"]: row["predicted_sigma"] for row in history}
    for layer in ("0", "4.conv1", "5.conv1"):
        measured = float((lossy[layer] - plain[layer]).square().mean().sqrt())
        assert measured == pytest.approx(predicted[layer], rel=0.2)


@pytest.mark.parametrize("error_model", ["exact", "paper"])
def test_a_mean_over_micro_batches_bears_larger_bounds(error_model: str) -> None:
    bounds = Bounds(error_bounded(error_model=error_model), momentum=0.9)
    bounds.adapt({"one": state(), "sixteen": state(num_micro_batches=16)}, {})
    assert bounds.of("sixteen") == pytest.approx(4 * bounds.of("one"))


def test_loss_scaling_does_not_move_bounds() -> None:
    bounds = []
    for scale in (1.0, 1024.0):
        model = chain_model()
        optimizer = sgd(model)
        activations = open_activations(error_bounded(bounds="adaptive"), model, optimizer)
        train(model, optimizer, activations, range(3), scale)
        assert isinstance(activations, CompressedActivations)
        bounds.append([activations.bounds.of(layer) for layer in convolutions(model)])
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-4)
    assert 1e-4 not in bounds[0]


def test_state_goes_on_where_it_was() -> None:
    model = chain_model()
    optimizer = sgd(model)
    first = open_activations(error_bounded(), model, optimizer)
    train(model, optimizer, first, range(3))
    first.remove()
    second = open_activations(error_bounded(), model, optimizer)
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    assert isinstance(first, CompressedActivations) and isinstance(second, CompressedActivations)
    assert second.bounds.of("2") == first.bounds.of("2") != 1e-4


def test_each_mode_is_what_it_is_called() -> None:
    model = residual_model()
    assert isinstance(open_activations(ActivationsConfig(), model, sgd(model)), Untracked)
    assert isinstance(open_codec(ActivationsConfig(name="lossless")), LosslessCodec)
    assert isinstance(open_codec(error_bounded()), QuantiseCodec)
    lossless = open_activations(ActivationsConfig(name="lossless", interval=1), model, sgd(model, 0.0))
    lossless.begin(0)
    forward_and_backward(model, images())
    lossless.end(0, 1.0)
    assert all(row["packed_bytes"] <= 1.04 * row["raw_bytes"] for row in lossless.history)


def test_what_is_lossless_has_no_bound_and_no_error() -> None:
    model = chain_model()
    optimizer = sgd(model)
    activations = open_activations(ActivationsConfig(name="lossless"), model, optimizer)
    train(model, optimizer, activations, range(1))
    assert {(row["bound"], row["predicted_sigma"]) for row in activations.history} == {(0, 0)}


def test_nothing_to_do_for_torch_itself() -> None:
    model = residual_model()
    activations = open_activations(ActivationsConfig(), model, sgd(model))
    plain = forward_and_backward(model, images())
    activations.begin(0)
    again = forward_and_backward(model, images())
    activations.end(0, 1.0)
    activations.load_state_dict(activations.state_dict())
    activations.remove()
    assert plain.loss == again.loss and activations.history == []


@pytest.mark.parametrize("amp", [None, torch.bfloat16])
def test_blocks_that_run_twice_learn_the_same(amp: torch.dtype | None) -> None:
    plain_model, model = residual_model(), residual_model()
    activations = open_activations(ActivationsConfig(name="recompute"), model, sgd(model))
    for seed in range(3):
        plain = forward_and_backward(plain_model, images(seed=seed), amp=amp)
        again = forward_and_backward(model, images(seed=seed), amp=amp)
        assert again.loss == plain.loss
        for name, gradient in plain.gradients.items():
            assert torch.equal(gradient, again.gradients[name]), name
    for name, value in plain_model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name  # running statistics are updated once
    activations.remove()
    assert "forward" not in vars(model[4])


def test_blocks_are_what_computes_with_several_convolutions() -> None:
    assert list(blocks(residual_model())) == ["4", "5"]
    assert blocks(chain_model()) == {}


def test_a_chain_of_layers_has_no_blocks() -> None:
    model = chain_model()
    with pytest.raises(ConfigError, match="activations=recompute: Sequential is a plain chain of layers"):
        open_activations(ActivationsConfig(name="recompute"), model, sgd(model))


@pytest.mark.parametrize("name", ["lossless", "error_bounded", "injected_errors"])
def test_a_model_without_convolutions_is_refused(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(ConfigError, match=f"activations.name='{name}': Sequential has no 2d convolution"):
        open_activations(QuantiseConfig(name=name), model, sgd(model))


def injected(fraction: float) -> ActivationsConfig:
    return ActivationsConfig(name="injected_errors", momentum_fraction=fraction)


def test_injected_errors_have_the_accepted_size() -> None:
    model = chain_model()
    optimizer = sgd(model)
    activations = open_activations(injected(0.05), model, optimizer, seed=3)
    train(model, optimizer, activations, range(4))
    momenta = {name: conv.weight for name, conv in convolutions(model).items()}
    wanted = [
        0.05 * (1 - 0.9) * float(optimizer.state[w]["momentum_buffer"].abs().mean()) for w in momenta.values()
    ]
    others = [p.grad.clone() for p in model.parameters() if p.ndim < 4 and p.grad is not None]
    drawn: list[list[torch.Tensor]] = [[] for _ in wanted]
    activations.begin(4)
    for step in range(4, 404):
        activations.begin(step)
        for conv in convolutions(model).values():
            conv.weight.grad = torch.zeros_like(conv.weight)
        activations._inject(optimizer)  # type: ignore[attr-defined] # the optimizer would change its momentum
        for errors, conv in zip(drawn, convolutions(model).values(), strict=True):
            assert conv.weight.grad is not None
            errors.append(conv.weight.grad)
    for errors, sigma in zip(drawn, wanted, strict=True):
        assert float(torch.stack(errors).std()) == pytest.approx(sigma, rel=0.05)
        assert not torch.equal(errors[0], errors[1])
    left = [p.grad for p in model.parameters() if p.ndim < 4 and p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(others, left, strict=True))


def test_injected_errors_are_of_the_run_and_the_update() -> None:
    def weights(fraction: float, seed: int, first: int = 0) -> torch.Tensor:
        model = chain_model()
        optimizer = sgd(model)
        train(model, optimizer, open_activations(ActivationsConfig(), model, optimizer), range(first))
        activations = open_activations(injected(fraction), model, optimizer, seed=seed)
        train(model, optimizer, activations, range(first, 3))
        activations.remove()
        assert activations.history == [] and activations.state_dict() == {}
        return next(iter(convolutions(model).values())).weight.detach()

    assert torch.equal(weights(0.5, seed=0), weights(0.5, seed=0))
    assert torch.equal(weights(0.5, seed=0), weights(0.5, seed=0, first=1))  # the first update has no error
    assert not torch.equal(weights(0.5, seed=0), weights(0.5, seed=1))
    assert not torch.equal(weights(0.5, seed=0), weights(0.1, seed=0))


def test_what_follows_momentum_cannot_do_without() -> None:
    model = chain_model()
    with pytest.raises(ConfigError, match=r"activations=error_bounded with SGD, momentum 0: wanted SGD"):
        open_activations(error_bounded(), model, sgd(model, momentum=0.0))
    with pytest.raises(ConfigError, match=r"activations=injected_errors with SGD, momentum 0: wanted SGD"):
        open_activations(injected(0.01), model, sgd(model, momentum=0.0))
    with pytest.raises(ConfigError, match=r"activations=error_bounded with Adam, momentum 0"):
        open_activations(error_bounded(), model, torch.optim.Adam(model.parameters()))
    open_activations(error_bounded(bounds="fixed"), model, torch.optim.Adam(model.parameters())).remove()


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("name", "zip", "none or lossless or error_bounded or recompute or injected_errors"),
        ("codec", "zfp", "quantise or sz"),
        ("bounds", "some", "adaptive or fixed"),
        ("error_model", "mine", "exact or paper"),
        ("initial_bound", 0.0, "above 0"),
        ("momentum_fraction", -0.1, "above 0"),
        ("paper_factor", 0.0, "above 0"),
        ("interval", 0, "at least 1"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_its_key(key: str, value: object, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"activations.{key}={value!r}: wanted {wanted}"):
        ActivationsConfig(**{key: value})  # type: ignore[arg-type]
