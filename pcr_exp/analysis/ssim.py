"""Single-scale structural similarity, by scikit-image."""

from __future__ import annotations

import numpy as np
from skimage.metrics import structural_similarity


def ssim(reference: np.ndarray, image: np.ndarray) -> float:
    """SSIM of two uint8 [H, W, 3] or [H, W] pictures as Wang et al. (2004) define it; at least 11 x 11 px.

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
