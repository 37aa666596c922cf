"""Cut images out of a photograph: draw a random view of it, then render and encode it.

Rendering averages 2 x 2 samples per output pixel, at no less than one source pixel per output pixel. Sharp
images therefore stay sharp to the pixel, which the fine label (in focus or blurred) depends on. Beyond the
edges of its region, a view shows the region mirrored, never the other split.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import cv2
import numpy as np
from PIL import Image

SUPERSAMPLE = 2
MIN_DETAIL = 10.0
"""Minimum standard deviation of the Laplacian in an image's centre; plain sky has no focus to judge."""
MAX_DRAWS = 12


@dataclass(frozen=True, slots=True)
class View:
    """Position, scale, orientation and exposure of an image."""

    center_x: float
    center_y: float
    scale: float
    """Source pixels per output pixel, at least 1."""
    angle_rad: float
    flip: bool
    gain: float
    gamma: float


def draw_view(rng: np.random.Generator, height: int, width: int, size_px: int) -> View:
    """Draw a random view of a region of height x width pixels, inside it if the region is large enough."""
    scale = rng.uniform(1.0, 1.4)
    angle_rad = math.radians(rng.uniform(-15, 15))
    reach = 0.5 * size_px * scale * (math.cos(angle_rad) + math.sin(abs(angle_rad)))
    return View(
        center_x=_draw_center(rng, width, reach),
        center_y=_draw_center(rng, height, reach),
        scale=scale,
        angle_rad=angle_rad,
        flip=bool(rng.integers(2)),
        gain=rng.uniform(0.9, 1.1),
        gamma=math.exp(rng.uniform(-0.1, 0.1)),
    )


def _draw_center(rng: np.random.Generator, extent: int, reach: float) -> float:
    margin = min(reach, 0.4 * extent)
    return rng.uniform(margin, extent - margin)


def render(region: np.ndarray, view: View, size_px: int) -> np.ndarray:
    """Render the part of `region` in `view`: uint8 [size_px, size_px] or [size_px, size_px, 3]."""
    fine_px = size_px * SUPERSAMPLE
    step = view.scale / SUPERSAMPLE
    cos, sin = step * math.cos(view.angle_rad), step * math.sin(view.angle_rad)
    mirror = -1 if view.flip else 1
    to_source = np.array([[mirror * cos, -sin], [mirror * sin, cos]])
    middle = np.full(2, (fine_px - 1) / 2)
    offset = np.array([view.center_x, view.center_y]) - to_source @ middle
    fine = cv2.warpAffine(
        region,
        np.column_stack([to_source, offset]),
        (fine_px, fine_px),
        flags=cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REFLECT_101,
    )
    image = cv2.resize(fine, (size_px, size_px), interpolation=cv2.INTER_AREA)
    return cv2.LUT(image, _tone_curve(view))


def _tone_curve(view: View) -> np.ndarray:
    levels = np.linspace(0, 1, 256)
    return np.clip(255 * view.gain * levels**view.gamma, 0, 255).round().astype(np.uint8)


def detail(image: np.ndarray) -> float:
    """Return the standard deviation of the grey image's Laplacian in its middle half, inside eval crops."""
    grey = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    margin = grey.shape[0] // 4
    return float(cv2.Laplacian(grey, cv2.CV_32F)[margin:-margin, margin:-margin].std())


def draw_image(rng: np.random.Generator, region: np.ndarray, size_px: int) -> np.ndarray:
    """Draw a random image with enough detail to judge its focus, or else the most detailed of `MAX_DRAWS`."""
    best, best_detail = None, -1.0
    for _ in range(MAX_DRAWS):
        image = render(region, draw_view(rng, region.shape[0], region.shape[1], size_px), size_px)
        if (found := detail(image)) > best_detail:
            best, best_detail = image, found
        if best_detail >= MIN_DETAIL:
            break
    assert best is not None
    return best


def defocus(rng: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """Blur the image slightly, as if out of focus: a Gaussian of 1.3 to 1.7 pixels."""
    return cv2.GaussianBlur(image, (0, 0), rng.uniform(1.3, 1.7))


def encode_jpeg(image: np.ndarray, quality: int) -> bytes:
    """Encode a baseline JPEG: 4:2:0 for a colour image, one component for a grey one."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
