"""FFCV's own files: its writer decodes every image and re-encodes it at JPEG quality 90 and 4:2:0.

The images differ from those that all other loaders decode: fewer bytes, less colour, new artefacts. Other
differences are those of `beton`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from ffcv.fields import RGBImageField
from PIL import Image

from experiments.loaders.peers.beton import batches as batches  # read in the same way
from experiments.loaders.peers.beton import write
from experiments.loaders.peers.catalogue import SourceImage

QUALITY = 90


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Write one file, as `RGBImageField(write_mode="jpg")` does."""
    write(images, folder, RGBImageField(write_mode="jpg", jpeg_quality=QUALITY), _decoded)


def _decoded(source: SourceImage) -> npt.NDArray[np.uint8]:
    """Return uint8 [H, W, 3]."""
    with Image.open(source.path) as image:
        return np.asarray(image.convert("RGB"))
