"""Network inputs: pixels normalised as the weights expect, at the epoch's input size.

Small inputs make the first epochs cheaper (`training.input_sizes`; Howard 2018 for DAWNBench, Tan and Le
2021) and need fewer scans. With `scan=schedule`, resolution and fidelity grow together. Batches are always
loaded at `training.image_size` and shrunk on the device.
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
"""Checkpoint key of the normalisation."""


class Normalization(NamedTuple):
    """(pixels - mean) / std, for red, green and blue in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def to_plain(self) -> dict[str, list[float]]:
        """Return plain values for a checkpoint, which `from_plain` reads."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Sequence[float]]) -> Normalization:
        """Build the normalisation from `to_plain`'s values."""
        return cls(tuple(values["mean"]), tuple(values["std"]))


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Means and standard deviations of ImageNet's training images.

Models without pretrained weights use these on every dataset; any values would do.
"""


def normalization_of(config: ModelConfig) -> Normalization:
    """Return `model.mean` and `model.std` if given, else what the model's weights were trained with.

    A run's checkpoint given as weights contains its normalisation. For other files and published weights, it
    is the one that the model's library states for its default weights of this model.

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
        device: Device of the result. A pinned batch is copied without blocking.
        channels_last: Keep the loader's memory order (NHWC); else NCHW.
        normalization: Normalisation that the model's weights expect.

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
    """Return the input's side in pixels in an epoch (from 0): `input_sizes[i]` after `i` milestones."""
    if not config.input_sizes:
        return config.image_size
    return config.input_sizes[bisect_right(config.input_milestones, epoch)]


def shrunk(images: Tensor, size: int) -> Tensor:
    """Shrink a batch with an antialiased bilinear filter, like Pillow's and torchvision's.

    Args:
        images: uint8 [B, H, W, 3], contiguous.
        size: Target side in pixels; images that are no larger are returned unchanged.

    Returns:
        uint8 [B, size, size, 3], contiguous, on the same device.
    """
    if max(images.shape[1:3]) <= size:
        return images
    pixels = images.permute(0, 3, 1, 2).float()
    smaller = torch.nn.functional.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    return smaller.round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
