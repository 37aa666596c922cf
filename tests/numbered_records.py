"""Records of images with a label that is unique to each."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import skimage.data
from PIL import Image

from pcr_exp.datasets.sample import Sample
from pcr_exp.records.encode import encode_split


def square_crops(corners: Iterable[tuple[int, int]], size_px: int, quality: int) -> list[bytes]:
    """Return square crops of one photograph as JPEG files, each with its top left corner from `corners`."""
    photo = Image.fromarray(skimage.data.astronaut())
    files = []
    for left, top in corners:
        buffer = io.BytesIO()
        photo.crop((left, top, left + size_px, top + size_px)).save(buffer, "JPEG", quality=quality)
        files.append(buffer.getvalue())
    return files


def encode_numbered(
    jpegs: Iterable[bytes],
    folder: Path,
    *,
    images_per_record: int,
    dataset: str = "astronaut",
    num_workers: int = 1,
    **labels: list[str],
) -> Path:
    """Write JPEG files to `folder`, encode them as records of both encodings, and return the records' folder.

    The label `number` of an image is its index. `labels` are further labels with their classes, which images
    take in turn.
    """
    samples = []
    for i, jpeg in enumerate(jpegs):
        path = folder / f"{i:03d}.jpg"
        path.write_bytes(jpeg)
        in_turn = {name: i % len(classes) for name, classes in labels.items()}
        samples.append(Sample(path.name, path, {"number": i, **in_turn}))
    encode_split(
        samples,
        {"number": [str(i) for i in range(len(samples))], **labels},
        folder / "records",
        dataset=dataset,
        split="train",
        images_per_record=images_per_record,
        num_workers=num_workers,
    )
    return folder / "records"
