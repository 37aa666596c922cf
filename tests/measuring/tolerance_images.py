"""Images whose class shows only in fine detail or only in colour, and a network that sees both."""

from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from pcr_exp.config.crops import CropSettings
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.measuring.tolerance.features import Backbone
from pcr_exp.measuring.tolerance.images import ImageFiles
from pcr_exp.training.inputs import Normalization

SIZE_PX = 48
GROUPS = (1, 2, 5, 10)


class Seen(nn.Module):
    """Sees mean colour, and differences of horizontal neighbours within 8 x 8 blocks and across blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.fc = nn.Linear(4, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, 3, H, W] to [B, 2]."""
        self.calls += 1
        fine = (images[..., 1:] - images[..., :-1]).abs().mean((1, 2, 3))
        return self.fc(torch.cat([images.mean((2, 3)), fine[:, None]], dim=1))


def backbone(model: nn.Module | None = None) -> Backbone:
    """Return a backbone that takes pixels in [0, 1] as they are."""
    return Backbone(model or Seen(), Normalization((0, 0, 0), (1, 1, 1)), torch.device("cpu"))


def write_samples(folder: Path, kind: str, num_images: int = 60) -> list[Sample]:
    """`fine`: every second column is lighter in class 1; `colour`: class 1 is redder. All else is random."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    samples = []
    for i in range(num_images):
        label = i % 2
        image = np.full((SIZE_PX, SIZE_PX, 3), rng.integers(90, 150, 3), dtype=np.float64)
        if kind == "fine":  # waves of eight pixels, unrelated to the class
            image += rng.uniform(0, 40) * np.cos(np.arange(SIZE_PX) * np.pi / 4)[None, :, None]
        if kind == "fine" and label:
            image += np.where(np.arange(SIZE_PX) % 2, 40.0, -40.0)[None, :, None]
        if kind == "colour":
            image[..., 2] += 60 if label else -60  # red in OpenCV's order
        path = folder / f"{i}.jpg"
        cv2.imwrite(str(path), image.clip(0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 95])
        samples.append(Sample(path.name, path, {"class": label}))
    return samples


def image_files(
    samples: list[Sample], groups: tuple[int, ...] = GROUPS, max_pixels: int = 10**6
) -> ImageFiles:
    """Whole images, not resized."""
    augment = AugmentConfig(eval_crop_fraction=1.0)
    crops = CropSettings(train_px=SIZE_PX, eval_px=SIZE_PX, augment=augment, decode="unsmoothed")
    return ImageFiles(samples, groups, crops, max_pixels=max_pixels)
