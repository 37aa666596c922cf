"""Measured facts of a dataset's images, and its name in titles and tables.

A folder's name reveals little: `imagenet` may be ten classes at 224 px and quality 75. Sizes and qualities
are therefore measured on a sample of the images in the records. The sample does not depend on how images are
split, so all folds of a dataset get the same name.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from statistics import median_low
from typing import NamedTuple

from pcr_exp.datasets.sample import Dataset, sort_key
from pcr_exp.errors import ImageError
from pcr_exp.images.jpeg import read_frame
from pcr_exp.images.jpeg_quality import estimate_quality
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages

NUM_MEASURED = 2_000
"""Enough images for the median size of varied images to within 2 %, in 0.2 s."""
_MAX_GAP_BYTES = 2**19
"""Largest gap to read through: on distant storage, that takes as long as another request."""
_TITLES = {"imagenet": "ImageNet", "ham10000": "HAM10000", "cars": "Stanford Cars", "celebahq": "CelebA-HQ"}
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFacts:
    """Facts of a dataset's images; sizes and qualities are measured on `num_measured` files."""

    num_images: int
    """Number of images in all splits."""
    num_classes: int
    """Number of the label's classes that have images; 0 if its values are numbers."""
    num_measured: int
    """Number of measured files; if 0, the files are not JPEG and the fields below are unknown."""
    width_px: int | None = None
    """Median, as are the next three fields."""
    height_px: int | None = None
    short_side_px: int | None = None
    quality: int | None = None
    """libjpeg quality, estimated from the quantisation tables."""
    one_size: bool = False
    """Whether all have the same width and height."""
    one_quality: bool = False
    """Whether all have the same quality."""


class ImageFile(NamedTuple):
    """Size and estimated quality of a JPEG file."""

    width_px: int
    height_px: int
    quality: int


def read_image_file(jpeg: bytes) -> ImageFile:
    """Read the size and estimate the quality of a file. Raises ImageError if it is not a JPEG."""
    frame = read_frame(jpeg)
    return ImageFile(frame.width_px, frame.height_px, estimate_quality(jpeg))


def facts_of(files: Iterable[ImageFile], *, num_images: int, num_classes: int) -> DatasetFacts:
    """Return the facts of a dataset, computed from a sample of its files."""
    measured = list(files)
    if not measured:
        return DatasetFacts(num_images=num_images, num_classes=num_classes, num_measured=0)
    return DatasetFacts(
        num_images=num_images,
        num_classes=num_classes,
        num_measured=len(measured),
        width_px=median_low(file.width_px for file in measured),
        height_px=median_low(file.height_px for file in measured),
        short_side_px=median_low(min(file.width_px, file.height_px) for file in measured),
        quality=median_low(file.quality for file in measured),
        one_size=len({(file.width_px, file.height_px) for file in measured}) == 1,
        one_quality=len({file.quality for file in measured}) == 1,
    )


def measure_facts(splits: Iterable[RecordSet], label: str, num_measured: int = NUM_MEASURED) -> DatasetFacts:
    """Measure the facts of the images in some records.

    Reads the headers of all records, and `num_measured` images. Images of one record that lie close together
    take one read.

    Args:
        splits: Records of every split, in any encoding: the first scan is as informative as the whole file.
        label: The label whose classes are counted.
        num_measured: Maximum number of files to measure.

    Raises:
        PcrExpError: a record cannot be read, or is damaged.
    """
    sets = [SingleImages(records) for records in splits]
    classes: set[int] = set()
    num_images = 0

    def keys() -> Iterator[tuple[bytes, int, int, int]]:
        nonlocal num_images
        for number, images in enumerate(sets):
            for record in range(len(images.records.index.records)):
                header = images.header(record)
                num_images += len(header.ids)
                classes.update(map(int, header.labels[label]))
                for i, id_ in enumerate(header.ids):
                    yield sort_key(id_), number, record, i

    sample: dict[tuple[int, int], list[int]] = {}
    for _, number, record, i in heapq.nsmallest(num_measured, keys()):
        sample.setdefault((number, record), []).append(i)
    files = (
        _of_bytes(encoded)
        for (number, record), of_record in sample.items()
        for encoded in sets[number].read_several(record, of_record, 1, max_gap_bytes=_MAX_GAP_BYTES)
    )
    return facts_of(chain.from_iterable(files), num_images=num_images, num_classes=len(classes))


def facts_of_files(dataset: Dataset, label: str, num_measured: int = NUM_MEASURED) -> DatasetFacts:
    """Measure a dataset's own files, with the same result as its records. Raises OSError if one is gone."""
    samples = list(chain.from_iterable(dataset.splits.values()))
    sample = heapq.nsmallest(num_measured, samples, key=lambda image: sort_key(image.id))
    files = chain.from_iterable(_of_bytes(image.file.read_bytes()) for image in sample)
    classes = {image.labels[label] for image in samples}
    return facts_of(files, num_images=len(samples), num_classes=len(classes))


def _of_bytes(encoded: bytes) -> list[ImageFile]:
    try:
        return [read_image_file(encoded)]
    except ImageError:  # an image of another codec, which has other facts
        return []


def describe_dataset(name: str, facts: DatasetFacts | None) -> str:
    """Describe a dataset by its images, such as `ImageNet, ten classes, 224 px, q75`.

    `about` marks the median of differing values; for sizes, that of the short side to two significant digits.

    Args:
        name: `dataset.name`; unless it is one of the papers' datasets, it is used unchanged.
        facts: None for runs that did not measure them; the result is then `name`.
    """
    if facts is None:
        return name
    parts = [_title(name, facts)]
    if facts.num_classes:
        parts.append(f"{_number(facts.num_classes)} classes")
    if facts.num_measured:
        parts += [_size(facts), f"{'' if facts.one_quality else 'about '}q{facts.quality}"]
    return ", ".join(parts)


def _title(name: str, facts: DatasetFacts) -> str:
    # CelebA-HQ is square. CelebA's aligned images (178 x 218 px) come in the same layout.
    is_celeba = name == "celebahq" and facts.width_px != facts.height_px
    return "CelebA" if is_celeba else _TITLES.get(name, name)


def _number(number: int) -> str:
    return _WORDS[number] if number < len(_WORDS) else f"{number:,}"


def _size(facts: DatasetFacts) -> str:
    if not facts.one_size:
        return f"about {float(f'{facts.short_side_px:.2g}'):g} px"
    square = facts.width_px == facts.height_px
    return f"{facts.width_px} px" if square else f"{facts.width_px} x {facts.height_px} px"
