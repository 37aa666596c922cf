"""Inputs of a network: pixels normalised as its weights want them, at the size of the epoch.

Small inputs in the first epochs make them cheaper (`training.input_sizes`; Howard 2018 for DAWNBench, Tan and
Le 2021), and need fewer scans: together with `scan=schedule` resolution and fidelity grow side by side.
Batches are loaded at `training.image_size` throughout, and shrunk on the device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pcr_exp.config.components import build, schemas
from pcr_exp.config.training import ModelConfig, TrainingConfig
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
        """Plain values for a checkpoint; `from_plain` reads them."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Sequence[float]]) -> Normalization:
        """The normalisation of `to_plain`'s values."""
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
    images: Tensor, device: torch.device, *, channels_last: bool, normalization: Normalization = IMAGENET
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


def input_size(config: TrainingConfig, epoch: int) -> int:
    """Pixels of the input's sides in an epoch (from 0): `input_sizes[i]` after `i` milestones have passed."""
    if not config.input_sizes:
        return config.image_size
    return config.input_sizes[bisect_right(config.input_milestones, epoch)]


def shrunk(images: Tensor, size: int) -> Tensor:
    """Resize a batch, filtered over as many pixels as become one, as Pillow's and torchvision's bilinear.

    Args:
        images: uint8 [B, H, W, 3], contiguous.
        size: Of both sides; an image that is no larger is returned as it is.

    Returns:
        uint8 [B, size, size, 3], contiguous, on the same device.
    """
    if max(images.shape[1:3]) <= size:
        return images
    pixels = images.permute(0, 3, 1, 2).float()
    smaller = torch.nn.functional.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    return smaller.round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
