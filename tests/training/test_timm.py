"""timm's models through the same interface as torchvision's."""

import sys
from pathlib import Path

import pytest
import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.config.training import ModelConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.inputs import IMAGENET, Normalization, normalization_of
from pcr_exp.training.models import TimmConfig, open_model

NOT_HERE = "timm is not here: pip install 'pcr-exp[timm]'"


def test_a_model_of_timm_gets_a_head_for_the_label() -> None:
    pytest.importorskip("timm", reason=NOT_HERE)
    config = compose("train", TrainConfig, "model=timm", "model.name=resnet10t").model
    assert type(config) is TimmConfig
    model = open_model(config, num_classes=7)
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


def test_its_weights_say_what_they_want_pixels_normalised_with() -> None:
    pytest.importorskip("timm", reason=NOT_HERE)
    half = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert normalization_of(TimmConfig(name="vit_tiny_patch16_224", pretrained=True)) == half
    assert normalization_of(TimmConfig(name="vit_tiny_patch16_224")) == IMAGENET


def test_weights_of_a_file_are_loaded_but_for_a_head_of_another_size(tmp_path: Path) -> None:
    pytest.importorskip("timm", reason=NOT_HERE)
    source = open_model(TimmConfig(name="resnet10t"), num_classes=5)
    torch.save(source.state_dict(), tmp_path / "weights.pt")
    config = TimmConfig(name="resnet10t", pretrained=True, weights=str(tmp_path / "weights.pt"))
    loaded = open_model(config, num_classes=7).state_dict()
    assert loaded["fc.weight"].shape[0] == 7
    for key, value in source.state_dict().items():
        assert key.startswith("fc.") or torch.equal(loaded[key], value)


def test_a_name_that_timm_does_not_have_is_told_with_those_near_it() -> None:
    pytest.importorskip("timm", reason=NOT_HERE)
    with pytest.raises(ConfigError, match=r"model\.name='resnet_10t': not a model of timm .* resnet10t"):
        open_model(TimmConfig(name="resnet_10t"), num_classes=2)


def test_weights_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm", reason=NOT_HERE)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(ConfigError, match=r"model\.pretrained=true: timm could not load"):
        open_model(TimmConfig(name="resnet10t", pretrained=True), num_classes=2)


def test_without_timm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"timm cannot be imported .* pip install 'pcr-exp\[timm\]'"):
        open_model(TimmConfig(name="resnet10t"), num_classes=2)


def test_both_libraries_have_a_resnet18_and_their_runs_differ() -> None:
    with pytest.raises(ConfigError, match=r"model\.library='torchvision': wanted timm, with model=timm"):
        TimmConfig(name="resnet18", library="torchvision")
    assert TimmConfig(name="resnet18") != ModelConfig(name="resnet18")
