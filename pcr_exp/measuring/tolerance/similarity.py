"""How much each scan group shows of what a network is given: MS-SSIM of crops against the last group's."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.measuring.tolerance.images import GroupedImages


def similarity_of_groups(
    images: GroupedImages, positions: Sequence[int], num_threads: int = 1
) -> NDArray[np.float32]:
    """MS-SSIM of some images' crops at each group against the crop at the last one, [groups, images].

    Args:
        images: That were looked at.
        positions: Of those to compare: all can be decoded.
        num_threads: Images that are compared at a time.

    Raises:
        ImageError: an image cannot be decoded, or a crop is smaller than one window of SSIM.
    """

    def compare(position: int) -> list[float]:
        crops = images.views(position).crops
        return [ms_ssim(crops[-1], crop).value for crop in crops]

    with ThreadPoolExecutor(num_threads) as pool:
        columns = list(pool.map(compare, positions))
    return np.array(columns, dtype=np.float32).reshape(len(columns), len(images.groups)).T
