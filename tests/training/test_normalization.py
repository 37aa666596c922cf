"""Which normalisation a model gets: the user's, its weights' own, or ImageNet's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from composing import compose
from torch import nn

from pcr_exp.config.training import ModelConfig, TrainingConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.inputs import IMAGENET, Normalization, normalization_of
from pcr_exp.training.trainer import Trainer

HALF = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"name": "resnet18"}, IMAGENET),
        ({"name": "efficientnet_v2_l"}, IMAGENET),  # from scratch: as in all earlier runs
        ({"name": "resnet18", "pretrained": True}, IMAGENET),
        ({"name": "efficientnet_v2_l", "pretrained": True}, HALF),
        (
            {"name": "efficientnet_v2_l", "pretrained": True, "mean": [0, 0, 0], "std": [1, 1, 1]},
            ((0,) * 3, (1,) * 3),
        ),
        ({"name": "resnet18", "mean": [0.5] * 3, "std": [0.5] * 3}, HALF),
    ],
)
def test_it_is_the_user_s_or_the_weights_or_imagenet_s(
    settings: dict[str, Any], wanted: Normalization
) -> None:
    assert normalization_of(ModelConfig(**settings)) == wanted


@pytest.mark.parametrize("name", torchvision.models.list_models(module=torchvision.models))
def test_torchvision_says_it_of_all_its_weights(name: str) -> None:
    mean, std = normalization_of(ModelConfig(name=name, pretrained=True))
    assert len(mean) == len(std) == 3
    assert all(0 < value < 1 for value in (*mean, *std))


def test_a_file_of_weights_is_of_its_model_s_family_and_a_checkpoint_says_it_itself(tmp_path: Path) -> None:
    state = {"head.weight": torch.zeros(1)}
    torch.save(state, tmp_path / "bare.pth")
    torch.save({"format": 1, "model": state}, tmp_path / "before.pt")
    lite = Normalization((127 / 255,) * 3, (128 / 255,) * 3)
    torch.save({"format": 1, "model": state, "normalization": lite.to_plain()}, tmp_path / "checkpoint.pt")
    for file, wanted in (("bare.pth", HALF), ("before.pt", HALF), ("checkpoint.pt", lite)):
        config = ModelConfig(name="efficientnet_v2_l", pretrained=True, weights=str(tmp_path / file))
        assert normalization_of(config) == wanted
    with pytest.raises(ConfigError, match="no such file"):
        normalization_of(ModelConfig(name="resnet18", pretrained=True, weights=str(tmp_path / "gone.pth")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": [0.5] * 3}, r"model.std=None: wanted both model.mean and model.std"),
        ({"std": [0.5] * 3}, r"model.mean=None: wanted both"),
        ({"mean": [0.5] * 2, "std": [0.5] * 3}, r"model.mean=\[0.5, 0.5\]: wanted three finite numbers"),
        ({"mean": [0.5] * 3, "std": [0.5]}, r"model.std=\[0.5\]: wanted three"),
        ({"mean": [0.5, 0.5, float("nan")], "std": [0.5] * 3}, "model.mean=.*wanted three finite"),
        ({"mean": [0.5] * 3, "std": [0.5, 0.0, 0.5]}, "model.std=.*wanted numbers above 0"),
        ({"mean": [0.5] * 3, "std": [0.5, -0.1, 0.5]}, "model.std=.*wanted numbers above 0"),
        ({"mean": [127.0] * 3, "std": [0.5] * 3}, r"model.mean=\[127.0.*from 0 to 1, .*divide .* by 255"),
        ({"mean": [0.5, -0.1, 0.5], "std": [0.5] * 3}, "model.mean=.*wanted numbers from 0 to 1"),
        ({"mean": [0.5] * 3, "std": [128.0] * 3}, r"model.std=\[128.0.*up to 1, .*divide .* by 255"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(name="resnet18", **settings)


def test_it_can_be_said_on_the_command_line() -> None:
    given = ["model.mean=[0.5,0.5,0.5]", "model.std=[0.5,0.5,0.5]"]
    assert normalization_of(compose("train", "dataset=imagenet", *given).model) == HALF


def test_the_trainer_uses_it_and_its_checkpoint_keeps_it() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8))
    config = TrainingConfig(epochs=1, batch_size=4, image_size=32, eval_image_size=32, learning_rate=0.1)

    def trainer(normalization: Normalization) -> Trainer:
        torch.manual_seed(0)
        cpu = torch.device("cpu")
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return Trainer(model, config, device=cpu, seed=0, normalization=normalization)

    half, imagenet = trainer(HALF), trainer(IMAGENET)
    assert not torch.allclose(half.forward(images), imagenet.forward(images))
    imagenet.load_state_dict(half.state_dict())
    assert imagenet.normalization == HALF
    assert torch.equal(half.forward(images), imagenet.forward(images))
