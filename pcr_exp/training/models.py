"""Any torchvision classification model, by its name, with a head for the dataset's label."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import torch
import torchvision  # type: ignore[import-untyped]
from torch import nn

from pcr_exp.config.model import ModelConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.weights import load_pretrained


def open_model(config: ModelConfig, num_classes: int) -> nn.Module:
    """Build the model; its weights come from torch's global generator unless `config.pretrained`.

    The builder makes the head for `num_classes` itself, in each family's own place and with its own
    initialisation. Auxiliary classifiers (googlenet, inception_v3) are off.

    Raises:
        ConfigError: no such model, or weights that do not fit it (the message names the keys).
    """
    if config.weights is not None and not config.pretrained:
        raise ConfigError(
            f"model.weights={config.weights!r} but model.pretrained=false: set the latter to true to load it."
        )
    model = _build(config, num_classes)
    if config.pretrained:
        load_pretrained(model, config.name, config.weights)
    return model


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
                    f"model.name={name!r} cannot take a batch of {num_images} images"
                    f" of {size_px} x {size_px} px ({error}). Change training.{key} or"
                    " training.batch_size; the last batch of an epoch holds what is left."
                ) from error
    model.train(was_training)
    _taken.add(case)


def check_name(config: ModelConfig) -> None:
    """Raise ConfigError, with the names near it, unless torchvision has the model."""
    names = torchvision.models.list_models(module=torchvision.models)
    if config.name not in names:
        near = difflib.get_close_matches(config.name, names, n=5, cutoff=0.5) or names
        raise ConfigError(
            f"model.name={config.name!r}: not a torchvision classification model. "
            f"Near it: {', '.join(near)}. All: torchvision.models.list_models()."
        )


def _build(config: ModelConfig, num_classes: int) -> nn.Module:
    check_name(config)
    extra: dict[str, Any] = {}
    if config.name in ("googlenet", "inception_v3"):
        # torchvision's weights for these two were trained on inputs in [-1, 1].
        extra = {"aux_logits": False, "init_weights": True, "transform_input": config.pretrained}
    return torchvision.models.get_model(config.name, weights=None, num_classes=num_classes, **extra)
