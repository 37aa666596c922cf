"""Multi-scale structural similarity: how much of an image's structure survives.

Z. Wang, E. P. Simoncelli, A. C. Bovik, "Multiscale structural similarity for image quality assessment",
Asilomar 2003, with its calibrated scale weights. Window and constants are those of SSIM (Wang et al. 2004).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pytorch_msssim
import torch
from skimage.metrics import structural_similarity
from torch import Tensor
from torch.nn.functional import avg_pool2d

from pcr_exp.errors import ImageError

log = logging.getLogger(__name__)

SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
WINDOW_PX = 11
K1, K2 = 0.01, 0.03
SETTINGS = {"data_range": 255, "win_size": WINDOW_PX, "win_sigma": 1.5}

# With C1 = (K1 x 255)^2 this large, the luminance term of SSIM is 1. That leaves the product of the contrast
# and structure terms, which is all that Wang et al. use of every scale but the coarsest.
K1_WITHOUT_LUMINANCE = 1e6


@dataclass(frozen=True, slots=True)
class MsSsim:
    """A similarity in [0, 1] (1: identical images), and the number of scales it covers."""

    value: float
    num_scales: int


def ms_ssim(reference: np.ndarray, image: np.ndarray) -> MsSsim:
    """Return the MS-SSIM of `image` against `reference`, both uint8 [H, W, 3] or both uint8 [H, W].

    Five scales, 11 x 11 Gaussian window of sigma 1.5, K = (0.01, 0.03), data range 255. In colour, it is
    computed for R, G and B separately and averaged. Only windows inside the image count, as in
    pytorch_msssim. (torchmetrics averages the channels at every scale and mirrors the border of the coarsest
    one. Its results differ by up to 0.005.)

    The window must fit into the coarsest scale. If the short side is below 176 px, the coarsest scales are
    dropped and the remaining weights rescaled to the same sum; the result has the number of scales used. Both
    images are cropped at the right and bottom to a multiple of 2 ** (num_scales - 1), so that no
    implementation's padding of odd sides matters.

    (pytorch_msssim has had no release since 2023. On eight ImageNet images, piq gives the same values to
    within 2e-5 and takes 2.6 times as long; torchmetrics, which differs as above, takes 4 times as long.)

    Raises:
        ImageError: the two differ in shape, are not uint8 images, or are smaller than one window.
    """
    num_scales = scales_that_fit(reference, image)
    multiple = 2 ** (num_scales - 1)
    x, y = (_as_batch_of_one(one, multiple) for one in (reference, image))
    if num_scales == len(SCALE_WEIGHTS):
        value = pytorch_msssim.ms_ssim(x, y, **SETTINGS, K=(K1, K2), weights=SCALE_WEIGHTS)
    else:
        value = _ms_ssim_small(x, y, num_scales)
    return MsSsim(value=float(value), num_scales=num_scales)


def scales_that_fit(reference: np.ndarray, image: np.ndarray) -> int:
    """Count the scales, of five, that are at least one window wide and high. Raises ImageError if none is."""
    if reference.shape != image.shape or reference.dtype != np.uint8 or image.dtype != np.uint8:
        given = f"{reference.dtype} {reference.shape} and {image.dtype} {image.shape}"
        raise ImageError(f"MS-SSIM of {given}: wanted two uint8 images of the same shape.")
    if reference.ndim not in (2, 3) or (reference.ndim == 3 and reference.shape[2] != 3):
        raise ImageError(f"MS-SSIM of images of shape {reference.shape}: wanted [H, W] or [H, W, 3].")
    short_side = min(reference.shape[:2])
    fitting = sum(short_side // 2**scale >= WINDOW_PX for scale in range(len(SCALE_WEIGHTS)))
    if fitting == 0:
        raise ImageError(
            f"MS-SSIM of an image of {reference.shape[1]} x {reference.shape[0]} px: its window needs "
            f"{WINDOW_PX} px on both sides. Use larger images or crops."
        )
    return fitting


def fits_window(image: np.ndarray) -> bool:
    """Return whether `ms_ssim` can measure an image of this size."""
    return min(image.shape[:2]) >= WINDOW_PX


def report_too_small(what: str, num_small: int, num_images: int) -> None:
    """Log how many images are too small for a mean MS-SSIM; raise ImageError if all of them are."""
    if num_small == num_images:
        raise ImageError(
            f"{what}: all {num_images:,} images are smaller than {WINDOW_PX} px on a side; wanted at least "
            "one larger image, because MS-SSIM leaves out smaller ones. Measure more images or a dataset of "
            "larger ones, or train with another scan policy than mssim."
        )
    if num_small:
        log.warning(
            "%s: %d of %d images are smaller than %d px on a side, and are left out",
            *(what, num_small, num_images, WINDOW_PX),
        )


def _as_batch_of_one(image: np.ndarray, multiple: int) -> Tensor:
    """uint8 [H, W] or [H, W, C] -> float32 [1, C, H', W'] in channels-last memory (five times as fast)."""
    height, width = (side - side % multiple for side in image.shape[:2])
    pixels = image[:height, :width].reshape(1, height, width, -1).astype(np.float32)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def _ms_ssim_small(x: Tensor, y: Tensor, num_scales: int) -> Tensor:
    """MS-SSIM over the finest scales, by the library's SSIM, as its MS-SSIM rejects images below 161 px."""
    weights = torch.tensor(SCALE_WEIGHTS[:num_scales])
    weights *= sum(SCALE_WEIGHTS) / weights.sum()
    x, y = x.transpose(0, 1), y.transpose(0, 1)  # channels as the batch: one result per channel
    similarity = torch.ones(len(x))
    for scale, weight in enumerate(weights):
        coarsest = scale == num_scales - 1
        k = (K1 if coarsest else K1_WITHOUT_LUMINANCE, K2)
        similarity *= pytorch_msssim.ssim(x, y, **SETTINGS, K=k, size_average=False).clamp(min=0) ** weight
        if not coarsest:
            x, y = avg_pool2d(x, 2), avg_pool2d(y, 2)
    return similarity.mean()


def ssim(reference: np.ndarray, image: np.ndarray) -> float:
    """SSIM of two uint8 [H, W, 3] or [H, W] images of at least 11 x 11 px, as Wang et al. (2004) define it.

    Gaussian window of sigma 1.5 (11 x 11), population covariance, data range 255; channels averaged.
    """
    return float(
        structural_similarity(
            reference,
            image,
            channel_axis=2 if reference.ndim == 3 else None,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=255,
        )
    )
