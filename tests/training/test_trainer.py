"""One update against plain PyTorch, and the sources of its randomness."""

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.inputs import model_input
from pcr_exp.training.trainer import Trainer, _seed_of_draws

CPU = torch.device("cpu")


def config(**changes: Any) -> TrainingConfig:
    fields = {"epochs": 1, "batch_size": 4, "image_size": 8, "eval_image_size": 8, "learning_rate": 0.1}
    return TrainingConfig(**{**fields, **changes})


def small_model(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(144, 5),
    )


def batch(step: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    images = torch.randint(256, (4, 8, 8, 3), dtype=torch.uint8, generator=generator)
    return images, torch.randint(5, (4,), generator=generator)


def parameters(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().float().flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("channels_last", [True, False])
def test_updates_equal_plain_sgd(channels_last: bool) -> None:
    settings = {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01, "label_smoothing": 0.1}
    trainer = Trainer(small_model(), config(**settings, channels_last=channels_last), device=CPU, seed=0)
    plain = small_model().train()
    sgd = torch.optim.SGD(plain.parameters(), lr=1.0, momentum=0.8, nesterov=True, weight_decay=0.01)
    for step, rate in enumerate((0.1, 0.1, 0.01)):
        images, labels = batch(step)
        loss = trainer.update(images, labels, step=step, learning_rate=rate)
        sgd.param_groups[0]["lr"] = rate
        sgd.zero_grad()
        wanted = F.cross_entropy(
            plain(model_input(images, CPU, channels_last=False)), labels, label_smoothing=0.1
        )
        wanted.backward()
        sgd.step()
        assert loss == pytest.approx(wanted.item(), rel=1e-5)
    torch.testing.assert_close(parameters(trainer.model), parameters(plain), rtol=1e-4, atol=1e-6)


def test_updates_equal_plain_adamw() -> None:
    settings = {"optimizer": "adamw", "momentum": 0.8, "weight_decay": 0.01}
    trainer = Trainer(without_norm(), config(**settings), device=CPU, seed=0)
    plain = without_norm().train()
    adamw = torch.optim.AdamW(plain.parameters(), betas=(0.8, 0.999), weight_decay=0.01)
    for step, rate in enumerate((0.01, 0.01, 0.001)):
        images, labels = batch(step)
        trainer.update(images, labels, step=step, learning_rate=rate)
        adamw.param_groups[0]["lr"] = rate
        adamw.zero_grad()
        F.cross_entropy(plain(model_input(images, CPU, channels_last=False)), labels).backward()
        adamw.step()
    torch.testing.assert_close(parameters(trainer.model), parameters(plain))


def test_dropout_depends_on_seed_step_and_slot_only() -> None:
    def loss(seed: int, step: int, slot: int, *, noise: int = 1) -> float:
        trainer = Trainer(small_model(dropout=0.5), config(), device=CPU, seed=seed)
        torch.manual_seed(noise)
        return trainer.update(*batch(), step=step, learning_rate=0.1, slot=slot)

    assert loss(0, 5, 0) == loss(0, 5, 0, noise=2)
    assert len({loss(0, 5, 0), loss(0, 6, 0), loss(1, 5, 0), loss(0, 5, 1)}) == 4


def test_seeds_of_draws_do_not_collide_where_they_would_if_added() -> None:
    seeds = [_seed_of_draws(*key) for key in product(range(8), range(100), range(8))]
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) < 2**32


def without_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 5))


def test_parts_of_an_update_equal_one_batch_of_all_their_images() -> None:
    parts = [batch(part) for part in range(3)]
    whole = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    at_once, in_parts = (Trainer(without_norm(), config(), device=CPU, seed=0) for _ in range(2))
    for step in range(3):
        wanted = at_once.update(*whole, step=step, learning_rate=0.1)
        losses = [
            in_parts.update(*part, step=step, learning_rate=0.1, slot=i, part=i, num_parts=3)
            for i, part in enumerate(parts)
        ]
        assert losses[-1] == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(parameters(at_once.model), parameters(in_parts.model))


def test_a_part_whose_loss_is_not_finite_stops_the_step() -> None:
    trainer = Trainer(without_norm(), config(), device=CPU, seed=0)
    bias = trainer.model[1].bias  # type: ignore[index, union-attr]
    with torch.no_grad():
        bias[0] = float("nan")  # type: ignore[index, operator]
    trainer.update(*batch(), step=0, learning_rate=0.1, num_parts=2)
    with torch.no_grad():
        bias[0] = 0.0  # type: ignore[index, operator]
    before = parameters(trainer.model)
    loss = trainer.update(*batch(), step=0, learning_rate=0.1, part=1, num_parts=2)
    assert loss != loss
    assert torch.equal(parameters(trainer.model), before)
    assert trainer.update(*batch(), step=1, learning_rate=0.1) < 10, "and is forgotten"


def test_a_resumed_trainer_ends_where_an_uninterrupted_one_does() -> None:
    def updates(trainer: Trainer, steps: range) -> list[float]:
        return [trainer.update(*batch(step), step=step, learning_rate=0.1) for step in steps]

    whole = Trainer(small_model(0.5), config(), device=CPU, seed=0)
    losses = updates(whole, range(6))
    first = Trainer(small_model(0.5), config(), device=CPU, seed=0)
    assert updates(first, range(3)) == losses[:3]
    second = Trainer(small_model(0.5).apply(lambda m: m.float()), config(), device=CPU, seed=0)
    second.load_state_dict(first.state_dict())
    assert updates(second, range(3, 6)) == losses[3:]
    assert torch.equal(parameters(second.model), parameters(whole.model))


def test_a_loss_that_is_not_finite_moves_nothing() -> None:
    trainer = Trainer(small_model(), config(), device=CPU, seed=0)
    with torch.no_grad():
        trainer.model[5].bias[0] = float("nan")  # type: ignore[index, union-attr, operator]
    before = trainer.model[5].weight.clone()  # type: ignore[index, union-attr, operator]
    loss = trainer.update(*batch(), step=0, learning_rate=0.1)
    assert loss != loss
    assert torch.equal(trainer.model[5].weight, before)  # type: ignore[index, union-attr, arg-type]


@pytest.mark.parametrize("name", ["none", "lossless", "error_bounded"])
def test_compressed_activations_resume_where_they_were(name: str) -> None:
    def trainer() -> Trainer:
        activations = QuantiseConfig(name=name, interval=2)
        return Trainer(small_model(), config(), device=CPU, seed=0, activations=activations)

    def updates(of: Trainer, steps: range) -> list[float]:
        return [of.update(*batch(step), step=step, learning_rate=0.1) for step in steps]

    whole, first, second = trainer(), trainer(), trainer()
    losses = updates(whole, range(6))
    assert updates(first, range(3)) == losses[:3]
    second.load_state_dict(first.state_dict())
    assert updates(second, range(3, 6)) == losses[3:]
    assert second.activations.history == whole.activations.history
    assert second.saved_bytes.columns() == whole.saved_bytes.columns()
    assert whole.saved_bytes.state_dict()["num_looks"] == 3
    assert len(whole.activations.history) == (0 if name == "none" else 3)
    if name != "error_bounded":
        plain = Trainer(small_model(), config(), device=CPU, seed=0)
        assert updates(plain, range(6)) == losses


def test_a_look_is_at_the_mean_gradient_of_a_part() -> None:
    """The same images in two parts have one batch's gradient, and errors of half its variance."""
    sigmas = []
    for num_parts in (1, 2):
        activations = QuantiseConfig(interval=1, bounds="fixed")
        trainer = Trainer(small_model(), config(), device=CPU, seed=0, activations=activations)
        for part in range(num_parts):
            trainer.update(*batch(), step=0, learning_rate=0.1, part=part, num_parts=num_parts)
        sigmas.append(trainer.activations.history[-1]["predicted_sigma"])
    assert sigmas[0] > 0 and sigmas[1] == pytest.approx(sigmas[0] / math.sqrt(2), rel=1e-3)


def test_a_model_that_does_not_suit_the_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="activations=recompute: Sequential is a plain chain"):
        Trainer(small_model(), config(), device=CPU, seed=0, activations=ActivationsConfig(name="recompute"))


def test_mixed_precision_on_a_cpu_is_full_precision() -> None:
    trainer = Trainer(small_model(), config(amp=True), device=CPU, seed=0)
    assert trainer.amp_dtype is None
    assert not trainer.scaler.is_enabled()
    assert trainer.forward(batch()[0]).dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision_on_a_gpu_learns(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: dtype is torch.bfloat16)
    trainer = Trainer(small_model(), config(), device=torch.device("cuda"), seed=0)
    assert trainer.scaler.is_enabled() is (dtype is torch.float16)
    losses = [trainer.update(*batch(), step=step, learning_rate=0.05) for step in range(20)]
    assert losses[-1] < losses[0] / 2
