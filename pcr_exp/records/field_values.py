"""Parse a field's bytes according to its kind. Records store the bytes unchanged."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from pcr_exp.images.convert import BIT_DEPTH, DAMAGED
from pcr_exp.records.strict_json import UnfitError, parse_json

GEOMETRIC = ("boxes", "mask")
"""Kinds whose values change when the image is cropped."""
STACKED = ("array", "mask")
"""Kinds that are stacked into one tensor per batch; the others become lists."""
_MASK_MODES = {"1": np.uint8, "L": np.uint8, "P": np.uint8, "I": np.int32, "I;16": np.int32}
"""Pillow modes of PNG files with one number per pixel -> dtype of the mask."""
_STRETCHED = {2: 85, 4: 17}
"""Bit depth of a grey PNG file -> factor by which Pillow multiplies its numbers, to fill 0 to 255."""
_MAX_JSON_BYTES = 2**28
_MAX_NUMBER = 2**31


class Boxes(NamedTuple):
    """K bounding boxes of an image."""

    corners: npt.NDArray[np.float32]
    """[K, 4]: left, top, right, bottom in px."""
    labels: npt.NDArray[np.int64]
    """[K] class numbers; 0 if the boxes have no class."""


def parse_field(kind: str, data: bytes, size_px: tuple[int, int] | None) -> Any:
    """Parse the value of a field.

    Args:
        kind: One of `FIELD_KINDS`.
        data: The field's bytes.
        size_px: Width and height of the image; if None, the size of a mask is not checked.

    Returns:
        By kind: a uint8 or int32 [H, W] mask, `Boxes`, a string, parsed JSON, or a NumPy array.

    Raises:
        UnfitError: the kind is unknown or the bytes are invalid for it; the message gives the reason.
    """
    parse = _PARSERS.get(kind)
    if parse is None:
        raise UnfitError(
            f"it is of kind {kind!r}, which this version of pcr-exp does not know; a newer one may"
        )
    return parse(data, size_px)


def _mask(data: bytes, size_px: tuple[int, int] | None) -> npt.NDArray[Any]:
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if size_px is not None and image.size != size_px:
                raise UnfitError(
                    f"it is a mask of {image.width} x {image.height} px, wanted {size_px[0]} x {size_px[1]}, "
                    "the size of its image"
                )
            if image.mode not in _MASK_MODES:
                raise UnfitError(f"it is a PNG file of mode {image.mode}, wanted one number per pixel")
            values = np.array(image).astype(_MASK_MODES[image.mode])
            stretched = _STRETCHED.get(data[BIT_DEPTH], 1) if image.mode == "L" else 1
            return values // stretched
    except UnfitError:
        raise
    except DAMAGED as error:
        raise UnfitError(f"it is not a mask in a PNG file ({error})") from error


def _boxes(data: bytes, _: tuple[int, int] | None) -> Boxes:
    rows = parse_json(data, _MAX_JSON_BYTES) if data else []
    wanted = "a list of [left, top, right, bottom] in px, each with or without a class at the end"
    if type(rows) is not list or not all(type(row) is list and len(row) in (4, 5) for row in rows):
        raise UnfitError(f"it is not a list of boxes, wanted {wanted}")
    if len({len(row) for row in rows}) > 1:
        raise UnfitError(f"some boxes have a class and some have none, wanted {wanted}")
    for row in rows:
        left, top, right, bottom, *label = row
        numbers = all(type(number) in (int, float) and abs(number) < _MAX_NUMBER for number in row)
        if (
            not numbers
            or left > right
            or top > bottom
            or any(type(one) is not int or one < 0 for one in label)
        ):
            raise UnfitError(f"it has a box {str(row)[:80]}, wanted {wanted}")
    corners = np.array([row[:4] for row in rows], dtype=np.float32).reshape(-1, 4)
    return Boxes(corners, np.array([[*row, 0][4] for row in rows], dtype=np.int64))


def _text(data: bytes, _: tuple[int, int] | None) -> str:
    try:
        return data.decode()
    except ValueError as error:
        raise UnfitError(f"it is not UTF-8 text ({error})") from error


def _json(data: bytes, _: tuple[int, int] | None) -> Any:
    return parse_json(data, _MAX_JSON_BYTES)


def _array(data: bytes, _: tuple[int, int] | None) -> npt.NDArray[Any]:
    """Parse a .npy file without unpickling, and without allocating more than it contains."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version not in _ARRAY_HEADERS:
            raise UnfitError(f"it is an array of version {version}, wanted 1.0 or 2.0")
        shape, is_fortran, dtype = _ARRAY_HEADERS[version](file)
        if dtype.kind not in "biuf":
            raise UnfitError(f"it is an array of {dtype}, wanted numbers")
        values = np.frombuffer(data, dtype, offset=file.tell())
        if len(values) != math.prod(shape):
            raise UnfitError(f"it is an array of shape {list(shape)}, but holds {len(values)} numbers")
        values = values.reshape(shape, order="F" if is_fortran else "C")
    except UnfitError:
        raise
    except (ValueError, EOFError, TokenError, SyntaxError, TypeError, RecursionError) as error:
        raise UnfitError(f"it is not an array as written by numpy.save ({error})") from error
    return np.array(values, dtype=dtype.newbyteorder("="), order="C")


_ARRAY_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_PARSERS: dict[str, Callable[[bytes, tuple[int, int] | None], Any]] = {
    "array": _array,
    "boxes": _boxes,
    "json": _json,
    "mask": _mask,
    "text": _text,
}
