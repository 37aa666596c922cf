"""A small split to encode, and the contents of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from records_pictures import BAD, CASES

from pcr_exp.datasets.sample import Sample
from pcr_exp.records.encode import EncodeReport, encode_split

CLASSES = {"kind": ["even", "odd"], "size": ["s", "m", "l"]}


def write_images(folder: Path, images: dict[str, bytes]) -> list[Sample]:
    """Write image files, and return them as samples in the order given."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = []
    for i, (name, jpeg) in enumerate(images.items()):
        path = folder / f"{name}.jpg"
        path.write_bytes(jpeg)
        samples.append(Sample(f"{name}.jpg", path, {"kind": i % 2, "size": i % 3}))
    return samples


def encode(samples: list[Sample], folder: Path, **changes: Any) -> EncodeReport:
    """Encode with the simplest settings; 4 images per record."""
    settings: dict[str, Any] = {"split": "train", "images_per_record": 4, "num_workers": 2}
    return encode_split(samples, CLASSES, folder, dataset="photos", **settings | changes)


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, including hidden ones."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


GOOD = dict(list(CASES.items())[:10])
"""Three records: 4, 4 and 2 images."""
MESSY = {
    "a": CASES["420"],
    "zero": BAD["zero-byte"][0],
    "b": CASES["cmyk"],
    "png": BAD["png"][0],
    # A record whose images are all rejected:
    "c1": BAD["cut_in_scan"][0],
    "c2": BAD["text"][0],
    "c3": BAD["html"][0],
    "c4": BAD["lossless"][0],
    "d": CASES["grey"] + b"after the end",
    "e": CASES["exif_turned"],
}
