"""Native ImageNet photographs as records, made once."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from pcr_exp.datasets.sample import Sample
from pcr_exp.records.encode import encode_split

PHOTOS = Path(__file__).parents[2].parent / "shared" / "data" / "imagenet_native_sample"
WORK = Path(__file__).parents[2] / "data" / "benchmarks"


def photo_samples(count: int) -> list[Sample]:
    """So many of the photographs, over and over if there are fewer; each is a class."""
    paths = sorted(PHOTOS.rglob("*.JPEG"))
    if not paths:
        raise SystemExit(f"../shared/data is not here: {PHOTOS}")
    every = (
        Sample(f"{copy}/{p.name}", p, {"number": i}) for copy in range(count) for i, p in enumerate(paths)
    )
    return list(islice(every, count))


def photo_records(
    count: int, images_per_record: int, folder: Path | None = None, *, num_workers: int = 2
) -> Path:
    """The folder that holds both encodings of these samples; what is there already is not made again."""
    samples = photo_samples(count)
    num_classes = 1 + max(sample.labels["number"] for sample in samples)
    folder = folder or WORK / f"photos-{count}-{images_per_record}"
    encode_split(
        samples,
        {"number": [str(i) for i in range(num_classes)]},
        folder,
        dataset="photographs",
        split="train",
        images_per_record=images_per_record,
        on_error="fail",
        num_workers=num_workers,
        progress=lambda done, total: None,  # noqa: ARG005
    )
    return folder
