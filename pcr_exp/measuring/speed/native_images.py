"""Native ImageNet images as records, made once."""

from __future__ import annotations

from argparse import ArgumentParser
from itertools import islice
from pathlib import Path

from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import DatasetError
from pcr_exp.records.encode import encode_split

IMAGES = Path("../shared/data/imagenet_native_sample")
RECORDS = Path("data/benchmarks")


def add_images(parser: ArgumentParser) -> None:
    """Give a program the argument that says where the images are."""
    parser.add_argument("--images", type=Path, default=IMAGES, help="a folder of .JPEG files")


def native_samples(count: int, images: Path = IMAGES) -> list[Sample]:
    """So many of the folder's images, over and over if there are fewer; each is a class of its own.

    Raises:
        DatasetError: the folder holds no .JPEG file.
    """
    paths = sorted(images.rglob("*.JPEG"))
    if not paths:
        raise DatasetError(f"{images}: holds no .JPEG file. Name a folder of images with --images")
    every = (
        Sample(f"{copy}/{p.name}", p, {"number": i}) for copy in range(count) for i, p in enumerate(paths)
    )
    return list(islice(every, count))


def native_records(
    count: int,
    images_per_record: int,
    folder: Path | None = None,
    *,
    images: Path = IMAGES,
    num_workers: int = 2,
) -> Path:
    """The folder that holds both encodings of these samples; what is there already is not made again."""
    samples = native_samples(count, images)
    num_classes = 1 + max(sample.labels["number"] for sample in samples)
    folder = folder or RECORDS / f"native-{count}-{images_per_record}"
    encode_split(
        samples,
        {"number": [str(i) for i in range(num_classes)]},
        folder,
        dataset="imagenet_native",
        split="train",
        images_per_record=images_per_record,
        on_error="fail",
        num_workers=num_workers,
        progress=lambda done, total: None,  # noqa: ARG005
    )
    return folder
