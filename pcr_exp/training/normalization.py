"""What a model takes: pixels normalised as its weights want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pcr_exp.config.components import build, schemas
from pcr_exp.config.training import ModelConfig
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

KEY = "normalization"
"""A checkpoint's key that holds it."""


class Normalization(NamedTuple):
    """(pixels - mean) / std, of red, green and blue in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def to_plain(self) -> dict[str, list[float]]:
        """What a checkpoint holds; `from_plain` reads it."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Sequence[float]]) -> Normalization:
        """What `to_plain` gave."""
        return cls(tuple(values["mean"]), tuple(values["std"]))


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Means and deviations of ImageNet's training images.

What starts from nothing gets these, on every dataset: any would do.
"""


def normalization_of(config: ModelConfig) -> Normalization:
    """Return `model.mean` and `model.std` if given, else what the model's weights were trained with.

    A checkpoint of a run that is given as weights says it itself. Of other files, and of published weights,
    it is what the model's library says of its default weights for this model.

    Raises:
        ConfigError: the file of weights cannot be read.
    """
    if config.mean is not None and config.std is not None:
        return Normalization(tuple(config.mean), tuple(config.std))
    if not config.pretrained:
        return IMAGENET
    if config.weights is not None:
        from pcr_exp.training.weights import read_beside_weights

        kept = read_beside_weights(config.weights, KEY)
        if kept is not None:
            return Normalization.from_plain(kept)
    if type(config) not in schemas("model.normalization").values():
        return IMAGENET
    published: Normalization = build("model.normalization", config)
    return published


def model_input(
    images: Tensor,
    device: torch.device,
    *,
    channels_last: bool,
    normalization: Normalization = IMAGENET,
) -> Tensor:
    """Move a batch to the device as bytes, and normalise it there.

    Args:
        images: uint8 [B, H, W, 3], RGB, contiguous.
        device: Where the result lies. A pinned batch is copied without blocking.
        channels_last: Keep the loader's memory order (NHWC); else NCHW.
        normalization: What the model's weights want.

    Returns:
        float32 [B, 3, H, W]: (pixels / 255 - mean) / std, per channel.
    """
    pixels = images.to(device, non_blocking=True).permute(0, 3, 1, 2)
    if not channels_last:
        pixels = pixels.contiguous()
    mean = torch.tensor(normalization.mean, device=device).mul_(255).view(1, 3, 1, 1)
    std = torch.tensor(normalization.std, device=device).mul_(255).view(1, 3, 1, 1)
    return pixels.float().sub_(mean).div_(std)
