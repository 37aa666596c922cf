"""Drawn images with their fields: a mask, boxes, a caption, JSON and an array."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pcr_exp.datasets.sample import Sample
from pcr_exp.records.encode import EncodeReport, encode_split

KINDS = {"boxes": "boxes", "caption": "text", "mask": "mask", "meta": "json", "pose": "array"}
CLASSES = {"class": ["few", "many"]}


def png(values: np.ndarray) -> bytes:
    """Encode a mask as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


def npy(values: np.ndarray) -> bytes:
    """Encode an array as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def drawn_mask(i: int) -> np.ndarray:
    """Draw an ellipse whose position depends on `i`, uint8 [H, W] of 0 and 1."""
    height, width = 64 + 8 * (i % 3), 72
    rows, columns = np.mgrid[:height, :width]
    top, left = 20 + 3 * (i % 7), 22 + 2 * (i % 11)
    return (((rows - top) / 14) ** 2 + ((columns - left) / 18) ** 2 < 1).astype(np.uint8)


def box_of(mask: np.ndarray) -> list[int]:
    """Return left, top, right and bottom of the pixels that are 1; the last two are exclusive."""
    rows, columns = np.nonzero(mask)
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]


def fields_of(i: int) -> dict[str, bytes]:
    """Return the fields of image `i`; every fourth image has no box."""
    boxes = json.dumps([[*box_of(drawn_mask(i)), i % 2]]).encode() if i % 4 else b""
    return {
        "boxes": boxes,
        "caption": f"Bild {i}, schön".encode(),
        "mask": png(drawn_mask(i)),
        "meta": json.dumps({"number": i, "none": None}).encode(),
        "pose": npy(np.full((2, 3), i, dtype=np.float32)),
    }


def write_samples(folder: Path, num: int) -> list[Sample]:
    """Write images that are light where their mask is 1; masks and arrays are files, other fields bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = []
    for i in range(num):
        path = folder / f"{i:03}.jpg"
        Image.fromarray(drawn_mask(i) * np.uint8(170) + np.uint8(40)).save(path, quality=95)
        fields: dict[str, Path | bytes] = dict(fields_of(i))
        for name, suffix in (("mask", ".png"), ("pose", ".npy")):
            path.with_suffix(suffix).write_bytes(fields_of(i)[name])
            fields[name] = path.with_suffix(suffix)
        samples.append(Sample(path.name, path, {"class": i % 2}, fields=fields))
    return samples


def encode_fields(samples: list[Sample], folder: Path, **changes: Any) -> EncodeReport:
    """Encode records, by default of 4 images with all fields."""
    settings: dict[str, Any] = {"images_per_record": 4, "fields": KINDS}
    return encode_split(samples, CLASSES, folder, dataset="drawn", split="train", **settings | changes)
