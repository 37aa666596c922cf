"""From the uint8 batch that the loader makes to what a model takes."""

from __future__ import annotations

import torch
from torch import Tensor

from pcr_exp.training.normalization import IMAGENET, Normalization


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
