"""The head of every model family, pretrained weights from files, and errors."""

import logging
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import pytest
import torch
import torchvision
from torch import nn

from pcr_exp.config.training import ModelConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.models import check_model, open_model
from pcr_exp.training.weights import _head_keys

NAMES = torchvision.models.list_models(module=torchvision.models)
SMALL = {
    "resnet18": "fc",
    "shufflenet_v2_x0_5": "fc",
    "shufflenet_v2_x1_0": "fc",
    "mobilenet_v2": "classifier.1",
    "mobilenet_v3_small": "classifier.3",
    "squeezenet1_1": "classifier.1",
    "mnasnet0_5": "classifier.1",
    "efficientnet_b0": "classifier.1",
    "regnet_x_400mf": "fc",
    "densenet121": "classifier",
    "googlenet": "fc",
}


def config(name: str, weights: Path | None = None) -> ModelConfig:
    return ModelConfig(name=name, pretrained=weights is not None, weights=str(weights) if weights else None)


@pytest.mark.parametrize("name", SMALL)
def test_the_head_has_the_dataset_s_classes(name: str) -> None:
    model = open_model(config(name), 7).train()
    assert {key.rpartition(".")[0] for key in _head_keys(model.state_dict())} == {SMALL[name]}
    logits = model(torch.zeros(2, 3, 64, 64))
    assert isinstance(logits, torch.Tensor), "auxiliary heads are off"
    assert logits.shape == (2, 7)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("regnet_y_128gf", "regnet_x_32gf")])
def test_the_head_of_every_torchvision_model_is_found(name: str) -> None:
    # RegNet computes its widths with tensors, which have no values on the meta device.
    with nullcontext() if name.startswith("regnet") else torch.device("meta"):
        seven, eight = (open_model(config(name), n).state_dict() for n in (7, 8))
    assert set(_head_keys(seven)) == {key for key in seven if seven[key].shape != eight[key].shape}


def test_a_misspelt_name_lists_what_is_near() -> None:
    with pytest.raises(ConfigError, match=r"model.name='resnet-18'.*Similar names: .*resnet18"):
        open_model(config("resnet-18"), 7)


def test_a_name_near_nothing_lists_everything() -> None:
    with pytest.raises(ConfigError, match=r"alexnet, .*wide_resnet50_2"):
        open_model(config("q"), 7)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[nn.Module, Path]:
    """A model with 1,000 classes and the path of its weights file."""
    model = torchvision.models.shufflenet_v2_x0_5(num_classes=1000)
    path = tmp_path / "weights.pth"
    torch.save(model.state_dict(), path)
    return model, path


def test_pretrained_weights_but_a_fresh_head(
    trained: tuple[nn.Module, Path], caplog: pytest.LogCaptureFixture
) -> None:
    source, path = trained
    with caplog.at_level(logging.INFO):
        model = open_model(config("shufflenet_v2_x0_5", path), 7)
    assert model.fc.weight.shape == (7, 1024)
    assert "the head does not fit this label and is initialised at random (fc.weight, fc.bias)" in caplog.text
    given = source.state_dict()
    for key, value in model.state_dict().items():
        assert key.startswith("fc.") or torch.equal(value, given[key]), key


def test_a_head_that_fits_is_kept(trained: tuple[nn.Module, Path], caplog: pytest.LogCaptureFixture) -> None:
    source, path = trained
    with caplog.at_level(logging.INFO):
        model = open_model(config("shufflenet_v2_x0_5", path), 1000)
    assert torch.equal(model.fc.weight, source.get_parameter("fc.weight"))
    assert not caplog.records


def test_a_run_s_checkpoint_serves_as_weights(trained: tuple[nn.Module, Path]) -> None:
    source, path = trained
    torch.save({"format": 1, "model": source.state_dict(), "progress": {"step": 3}}, path)
    model = open_model(config("shufflenet_v2_x0_5", path), 7)
    assert torch.equal(model.conv1[0].weight, source.get_parameter("conv1.0.weight"))


def test_a_wrong_shape_is_named(trained: tuple[nn.Module, Path]) -> None:
    source, path = trained
    torch.save(source.state_dict() | {"conv1.0.weight": torch.zeros(3)}, path)
    with pytest.raises(ConfigError, match=r"shapes differ at conv1.0.weight \[3\], wanted \[24, 3, 3, 3\]"):
        open_model(config("shufflenet_v2_x0_5", path), 7)


def test_missing_and_unknown_keys_are_named(trained: tuple[nn.Module, Path]) -> None:
    source, path = trained
    state = source.state_dict()
    state["stem.weight"] = state.pop("conv1.0.weight")
    torch.save(state, path)
    with pytest.raises(ConfigError, match=r"missing conv1.0.weight; unknown stem.weight"):
        open_model(config("shufflenet_v2_x0_5", path), 7)


def test_weights_of_another_model_are_refused(trained: tuple[nn.Module, Path]) -> None:
    with pytest.raises(ConfigError, match=r"does not fit model.name='resnet18'.*and \d+ more"):
        open_model(config("resnet18", trained[1]), 7)


def test_torchvision_s_old_densenet_names_are_understood(tmp_path: Path) -> None:
    source = torchvision.models.densenet121(num_classes=1000)
    names = {
        key: key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2.") if "denselayer" in key else key
        for key in source.state_dict()
    }
    torch.save({names[key]: value for key, value in source.state_dict().items()}, tmp_path / "w.pth")
    model = open_model(config("densenet121", tmp_path / "w.pth"), 7)
    key = "features.denseblock1.denselayer1.norm1.weight"
    assert names[key] != key
    assert torch.equal(model.get_parameter(key), source.get_parameter(key))


def test_auxiliary_heads_in_a_file_are_left_out(tmp_path: Path) -> None:
    source = torchvision.models.googlenet(num_classes=1000, aux_logits=True, init_weights=False)
    torch.save(source.state_dict(), tmp_path / "w.pth")
    model = open_model(config("googlenet", tmp_path / "w.pth"), 7)
    assert model.transform_input, "its weights were trained on inputs in [-1, 1]"
    assert not any(key.startswith("aux") for key in model.state_dict())


def test_weights_without_pretrained_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"set model\.pretrained=true to load"):
        open_model(ModelConfig(name="resnet18", weights="somewhere.pth"), 7)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"model.weights='/no/such.pth': no such file"):
        open_model(config("shufflenet_v2_x0_5", Path("/no/such.pth")), 7)


def test_a_file_that_is_no_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "notes.pth"
    path.write_text("hello")
    with pytest.raises(ConfigError, match="cannot be read as a state dict"):
        open_model(config("shufflenet_v2_x0_5", path), 7)
    torch.save([1, 2], path)
    with pytest.raises(ConfigError, match="wanted a dict of tensors"):
        open_model(config("shufflenet_v2_x0_5", path), 7)


def test_code_in_a_weights_file_is_never_run(tmp_path: Path) -> None:
    path = tmp_path / "whole_model.pth"
    torch.save(nn.Linear(2, 2), path)  # a pickled object, as torch.save(model) writes it
    with pytest.raises(ConfigError, match="cannot be read as a state dict"):
        open_model(config("shufflenet_v2_x0_5", path), 7)


class Unreachable:
    """Stand-in for torchvision's weights without a network."""

    def __len__(self) -> int:
        return 1

    @property
    def DEFAULT(self) -> SimpleNamespace:  # noqa: N802
        def get_state_dict(**_: object) -> None:
            raise URLError("no network")

        return SimpleNamespace(get_state_dict=get_state_dict)


def test_without_a_network_the_error_says_how_to_give_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.models, "get_model_weights", lambda _: Unreachable())
    with pytest.raises(ConfigError, match=r"no network.*model.weights=<file>"):
        open_model(ModelConfig(name="shufflenet_v2_x0_5", pretrained=True), 7)


def test_default_weights_come_from_torchvision(
    trained: tuple[nn.Module, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = trained[0].state_dict()
    enum = torchvision.models.ShuffleNet_V2_X0_5_Weights
    monkeypatch.setattr(type(enum.DEFAULT), "get_state_dict", lambda _self, **_: dict(state))
    model = open_model(ModelConfig(name="shufflenet_v2_x0_5", pretrained=True), 7)
    assert torch.equal(model.conv1[0].weight, state["conv1.0.weight"])


def test_a_model_that_torchvision_has_no_weights_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.models, "get_model_weights", lambda _: ())
    with pytest.raises(ConfigError, match="torchvision has no weights of 'resnet18'"):
        open_model(ModelConfig(name="resnet18", pretrained=True), 7)


@pytest.mark.parametrize(
    ("name", "num_images", "size_px", "reason"),
    [
        ("resnet18", 1, 32, "more than 1 value per channel"),
        ("alexnet", 4, 32, "too small"),
        ("vit_b_32", 4, 64, "Expected 224"),
    ],
)
def test_batches_that_a_model_cannot_take(name: str, num_images: int, size_px: int, reason: str) -> None:
    with torch.device("meta"):
        model = open_model(config(name), 7)
    with pytest.raises(
        ConfigError, match=f"(?s)batch of {num_images} images? of {size_px} x .*{reason}.*image_size"
    ):
        check_model(model, name, train_batches=[(num_images, size_px)], eval_batches=[])


def test_checking_computes_and_changes_nothing() -> None:
    model = open_model(config("resnet18"), 7).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    check_model(model, "resnet18", train_batches=[(2, 32), (1, 64)], eval_batches=[(1, 32)])
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
