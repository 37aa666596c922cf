"""Resamples a part of an image to a given size."""

from __future__ import annotations

import math

import cv2
import numpy as np
import torch

from pcr_exp.images.codec import Part, Pixels, Source

_MARGIN_PX = 2
"""Neighbouring pixels that cubic interpolation reads on each side."""
_BLOCK_PX = 8
_SHARPENING = np.array([-0.1, 1.2, -0.1], dtype=np.float32)
"""Kernel along both axes of images decoded at 1/8, whose pixels are block means, which flattens the image.

For a parabola, 1/24 in place of 0.1 would undo the averaging; 0.1 gave the best MS-SSIM on photographs.
"""


def resample(part: Part, out: Pixels, *, antialias: bool, mirrored: bool = False) -> None:
    """Resample the part to fill `out`, uint8 [rows, columns, 3].

    If the part has at least as many rows or columns as `out`, its edges are rounded to whole pixels. Along
    axes that shrink, this is an error of up to half a pixel of `out`. (At full size, edges are whole.) No
    pixels beyond the edges are read.

    Args:
        part: In decoded pixels. Filtering covers only the shrinking left after decoding at a smaller size.
        out: Destination.
        antialias: Filter where `out` has fewer pixels than the part, as Pillow and torchvision do.
        mirrored: Swap left and right in `out`.
    """
    if part.rows >= out.shape[0] or part.columns >= out.shape[1] or part.denominator == 1:
        top, bottom = _whole(part.top, part.rows, part.pixels.shape[0])
        left, right = _whole(part.left, part.columns, part.pixels.shape[1])
        resize(part.pixels[top:bottom, left:right], out, antialias=antialias)
        if mirrored:
            cv2.flip(out, 1, dst=out)
    else:
        enlarge(part, out, mirrored=mirrored)


def whole_image(image: Source) -> Pixels:
    """Return a whole image at full size, whatever scale it was decoded at: uint8 [H, W, 3], writable."""
    pixels: Pixels = np.empty((image.height_px, image.width_px, 3), dtype=np.uint8)
    resample(image.part(0, 0, image.height_px, image.width_px), pixels, antialias=True)
    return pixels


def resize(image: Pixels, out: Pixels, *, antialias: bool) -> None:
    """Resize `image` bilinearly to fill `out`; copy it if it already has that size.

    With `antialias`, each axis that shrinks is filtered by a triangle scaled to its shrink factor.
    Without, an axis that shrinks to less than half is halved first, as often as needed, because bilinear
    interpolation alone would skip pixels. At factors of 1 to 2, it still weights some pixels more than
    others, so fine patterns turn into coarse ones. Enlarging is the same either way.
    """
    rows, columns = out.shape[:2]
    height, width = image.shape[:2]
    if (height, width) == (rows, columns):
        out[:] = image
    elif antialias and (height > rows or width > columns):
        _shrink(image, out)
    else:
        while height > 2 * rows or width > 2 * columns:
            # At exactly half the size, bilinear interpolation is the mean of the pixels that become one.
            height = -(-height // 2) if height > 2 * rows else height
            width = -(-width // 2) if width > 2 * columns else width
            half: Pixels = np.empty((height, width, 3), dtype=np.uint8)
            cv2.resize(image, (width, height), dst=half, interpolation=cv2.INTER_LINEAR)
            image = half
        cv2.resize(image, (columns, rows), dst=out, interpolation=cv2.INTER_LINEAR)


def _shrink(image: Pixels, out: Pixels) -> None:
    """Shrink bilinearly with the filter, by torch, whose uint8 code takes a quarter of Pillow's time.

    (As cheap as a small blur before plain bilinear, which only approximates it. Halving first saves nothing.)
    """
    writeable = image if image.flags.writeable else image.copy()  # torch warns about read-only arrays
    # [1, 3, H, W] as a view of memory that stays [H, W, 3], which is what that code works on.
    batch, shrunk = (torch.from_numpy(pixels)[None].permute(0, 3, 1, 2) for pixels in (writeable, out))
    # The operator behind F.interpolate(mode="bilinear", antialias=True), but writing directly into `out`.
    torch.ops.aten._upsample_bilinear2d_aa.out(batch, out.shape[:2], False, out=shrunk)


def enlarge(part: Part, out: Pixels, *, mirrored: bool = False) -> None:
    """Fill `out` from a part of an image that was decoded at a fraction of its size.

    The part's edges lie between pixels. The whole pixels around it are resized, and `out` is cut from the
    result. The first edge is thus accurate to half a pixel of `out`, and the last edge to one, since the size
    of the resized image is rounded to whole pixels too.
    """
    rows, columns = out.shape[:2]
    top, bottom = _around(part.top, part.rows, part.pixels.shape[0])
    left, right = _around(part.left, part.columns, part.pixels.shape[1])
    source = part.pixels[top:bottom, left:right]
    if part.denominator == _BLOCK_PX:
        source = _sharpened(source)
    # Whole sizes, not factors: only for them does OpenCV have fast code (25 us instead of 150 for a crop).
    larger_rows = round((bottom - top) * rows / part.rows)
    larger_columns = round((right - left) * columns / part.columns)
    larger = cv2.resize(source, (larger_columns, larger_rows), interpolation=cv2.INTER_CUBIC)
    y = _start((part.top - top) * larger_rows / (bottom - top), larger_rows - rows)
    x = _start((part.left - left) * larger_columns / (right - left), larger_columns - columns)
    if mirrored:
        cv2.flip(larger[y : y + rows, x : x + columns], 1, dst=out)  # one pass instead of two
    else:
        out[:] = larger[y : y + rows, x : x + columns]


def _sharpened(image: Pixels) -> Pixels:
    out: Pixels = np.empty(image.shape, dtype=np.uint8)
    cv2.sepFilter2D(image, -1, _SHARPENING, _SHARPENING, dst=out, borderType=cv2.BORDER_REPLICATE)
    return out


def _whole(first: float, count: float, size: int) -> tuple[int, int]:
    # Not `round`, which rounds halves to even: the result would depend on where `pixels` begin.
    start = min(math.floor(first + 0.5), size - 1)
    return start, max(start + 1, math.floor(first + count + 0.5))


def _around(first: float, count: float, size: int) -> tuple[int, int]:
    return max(0, math.floor(first) - _MARGIN_PX), min(size, math.ceil(first + count) + _MARGIN_PX)


def _start(position: float, last: int) -> int:
    return min(round(position), last)
