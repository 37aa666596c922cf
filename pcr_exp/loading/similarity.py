"""How much of training images is left at a scan group, as the run's own decoder shows them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Pixels, Source
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.images.resample import resample
from pcr_exp.loading.fixed_sample import FixedSample


def mean_similarities(sample: FixedSample, groups: Iterable[int]) -> dict[int, float]:
    """Mean MS-SSIM of a sample's images at each of some scan groups, against all of their groups.

    Raises:
        ImageError: an image is too small to be measured; the message begins with its id.
    """
    return {group: float(np.mean(_similarities(sample, group))) for group in groups}


def _similarities(sample: FixedSample, group: int) -> list[float]:
    if group == sample.full_group:
        return [1.0]
    values = []
    for position in range(len(sample)):
        whole, part = (_pixels(sample.image(position, g)) for g in (sample.full_group, group))
        try:
            values.append(ms_ssim(whole, part).value)
        except ImageError as error:
            raise ImageError(f"{sample.id(position)}: {error}") from error
    return values


def _pixels(image: Source) -> Pixels:
    """The whole image at its full size, at whatever scale it was decoded."""
    pixels = np.empty((image.height_px, image.width_px, 3), dtype=np.uint8)
    resample(image.part(0, 0, image.height_px, image.width_px), pixels, antialias=True)
    return pixels
