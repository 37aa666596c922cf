"""How large the network's input is in each epoch: `training.input_sizes`, for progressive resizing.

Small inputs in the first epochs make them cheaper (Howard 2018 for DAWNBench; Tan and Le 2021), and need
fewer scans: together with `scan=schedule` resolution and fidelity grow side by side. Batches are loaded at
`training.image_size` throughout, and shrunk on the device.
"""

from __future__ import annotations

from bisect import bisect_right

import torch
from torch import Tensor

from pcr_exp.config.training import TrainingConfig


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
