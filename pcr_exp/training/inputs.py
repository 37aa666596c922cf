"""From the uint8 batch that the loader makes to what a model takes."""

from __future__ import annotations

import torch
from torch import Tensor

# Of ImageNet's training images in [0, 1]; torchvision's weights expect them, so every dataset here uses them.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def model_input(images: Tensor, device: torch.device, *, channels_last: bool) -> Tensor:
    """Move a batch to the device as bytes, and normalise it there.

    Args:
        images: uint8 [B, H, W, 3], RGB, contiguous.
        device: Where the result lies. A pinned batch is copied without blocking.
        channels_last: Keep the loader's memory order (NHWC); else NCHW.

    Returns:
        float32 [B, 3, H, W], about zero mean and unit variance per channel.
    """
    pixels = images.to(device, non_blocking=True).permute(0, 3, 1, 2)
    if not channels_last:
        pixels = pixels.contiguous()
    mean = torch.tensor(IMAGENET_MEAN, device=device).mul_(255).view(1, 3, 1, 1)
    std = torch.tensor(IMAGENET_STD, device=device).mul_(255).view(1, 3, 1, 1)
    return pixels.float().sub_(mean).div_(std)
