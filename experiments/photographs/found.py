"""Inventory of a dataset's images: every file is checked and measured, and tables show the results."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import simplejpeg

from experiments.photographs.layouts import Origin, read_origin
from pcr_exp.analysis.tables import markdown_table
from pcr_exp.config.components import schemas
from pcr_exp.datasets.sample import Dataset, Sample, fold_of, open_dataset
from pcr_exp.errors import ImageError
from pcr_exp.images.jpeg import read_frame, segments
from pcr_exp.images.jpeg_quality import estimate_quality
from pcr_exp.records.dataset_facts import describe_dataset, facts_of_files

LABELS = {"cars": "model", "celebahq": "smiling", "ham10000": "dx", "imagenet": "wnid"}
"""Label whose classes are counted, by kind of dataset."""
NUM_FOLDS = 5
_SPLIT_SEED = 42
"""The default of `dataset.split_seed`, which decides the folds."""
_BASELINE, _GREY = 0xC0, 1

EXPECTED = Path(__file__).parents[2] / "results" / "datasets" / "expected.csv"
"""Numbers known of the sets before they were laid out: columns set, number and expected."""


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """An image whose file was read and fully decoded."""

    id: str
    split: str
    label: str
    group: str
    """Unit that decides its fold: a lesion, or the image itself."""
    num_bytes: int
    sha256: str
    width_px: int
    height_px: int
    quality: int
    is_grey: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A dataset, with the results of its check."""

    kind: str
    title: str
    """Its name in runs, titles and tables."""
    origin: Origin
    """Without a repository, and with nothing left out, if `lay` did not create the set."""
    images: list[CheckedImage]
    bad: list[str]
    """Ids of files that are not baseline JPEG or do not decode, with the reason."""


def find(kind: str, root: Path) -> Found:
    """Read a dataset with its own reader and check every file.

    Raises:
        DatasetError: it does not have its publisher's layout.
    """
    schema, label = schemas("dataset")[kind], LABELS[kind]
    config = schema(name=kind, root=str(root), label=label, images_per_record=1, tune_fraction=0.0)
    dataset = open_dataset(config)
    images, bad = [], []
    for split, sample in _samples(dataset):
        try:
            images.append(check_image(split, sample, dataset.classes[label][sample.labels[label]]))
        except ImageError as error:
            bad.append(f"{sample.id}: {error}")
    title = describe_dataset(kind, facts_of_files(dataset, label))
    origin = read_origin(root) or Origin("", "", "", num_files=len(images))
    return Found(kind, title, origin, sorted(images, key=lambda image: image.id), bad)


def check_image(split: str, sample: Sample, label: str) -> CheckedImage:
    """Read and decode a file of class `label`. Raises ImageError if it is damaged or not baseline JPEG."""
    content = sample.file.read_bytes()
    frame = read_frame(content)
    if frame.code != _BASELINE:
        raise ImageError(f"no baseline JPEG: its frame is FF {frame.code:02X}")
    for _ in segments(content):  # to the end-of-image marker
        pass
    try:
        simplejpeg.decode_jpeg(content, strict=True)
    except ValueError as error:
        raise ImageError(str(error)) from error
    return CheckedImage(
        id=sample.id,
        split=split,
        label=label,
        group=sample.group or sample.id,
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        width_px=frame.width_px,
        height_px=frame.height_px,
        quality=estimate_quality(content),
        is_grey=frame.num_components == _GREY,
    )


def sets_table(found: Iterable[Found]) -> pd.DataFrame:
    """Return a row per set: counts, sizes, JPEG quality, and a hash of its files and labels."""
    return pd.DataFrame([_set_row(one) for one in found])


def classes_table(found: Iterable[Found]) -> pd.DataFrame:
    """Return a row per class, with its numbers of train and val images."""
    rows = []
    for one in found:
        counts = Counter((image.label, image.split) for image in one.images)
        for label in sorted({image.label for image in one.images}):
            of_class = {split: counts[label, split] for split in ("train", "val")}
            rows.append({"set": one.kind, "class": label, **of_class})
    return pd.DataFrame(rows)


def folds_table(found: Iterable[Found]) -> pd.DataFrame:
    """Return a row per fold of `dataset.num_folds=5`: its images, and those of its rarest class."""
    rows = []
    for one in found:
        labels = {image.label for image in one.images}
        for fold in range(NUM_FOLDS):
            of_fold = [image for image in one.images if fold_of(image.group, NUM_FOLDS, _SPLIT_SEED) == fold]
            counts = Counter(image.label for image in of_fold)
            rarest = min(counts[label] for label in labels)
            rows.append({"set": one.kind, "fold": fold, "images": len(of_fold), "rarest_class": rarest})
    return pd.DataFrame(rows)


def expected_table(found: Iterable[Found]) -> pd.DataFrame:
    """Return a row per number that was known beforehand, with the number found."""
    known = pd.read_csv(EXPECTED)[["set", "number", "expected"]]
    parts = []
    for one in found:
        of_set = known[known["set"] == one.kind]
        parts.append(of_set.assign(found=of_set["number"].map(_numbers(one))))
    table = pd.concat(parts, ignore_index=True)
    return table.assign(agrees=table["expected"] == table["found"])


def page_table(sets: pd.DataFrame) -> str:
    """Return the table of sets in Markdown."""
    columns = {
        "set": lambda row: row["title"],
        "images": lambda row: f"{row['images']:,}",
        "train": lambda row: f"{row['train']:,}",
        "val": lambda row: f"{row['val']:,}",
        "classes": lambda row: f"{row['classes']} of {row['smallest_class']:,} to {row['largest_class']:,}",
        "width px": lambda row: _range(row, "width_px"),
        "height px": lambda row: _range(row, "height_px"),
        "quality": lambda row: _range(row, "quality"),
        "mean kB": lambda row: f"{row['mean_kb']:.1f}",
        "grey": lambda row: f"{row['grey']:,}",
        "files, left out": lambda row: f"{row['files']:,}, {row['left_out']:,}",
    }
    return markdown_table(sets, columns)


def _range(row: Mapping[Any, Any], what: str) -> str:
    low, middle, high = (int(row[f"{what}_{part}"]) for part in ("min", "median", "max"))
    return str(middle) if low == high else f"{middle} ({low} to {high})"


def _samples(dataset: Dataset) -> Iterator[tuple[str, Sample]]:
    return ((split, image) for split, images in dataset.splits.items() for image in images)


def _numbers(found: Found) -> dict[str, Any]:
    images, origin = found.images, found.origin
    counts = Counter(image.label for image in images)
    removed = sum(map(len, origin.contradictions))
    merged = sum(len(paths) - 1 for paths in origin.duplicates)
    numbers: dict[str, Any] = {
        "files": origin.num_files,
        "unique": len({image.sha256 for image in images}) + len(origin.contradictions),
        "classes": len(counts),
        "smallest_class": min(counts.values()),
        "largest_class": max(counts.values()),
        "val": sum(image.split == "val" for image in images),
        "grey": sum(image.is_grey for image in images),
        "lesions": len({image.group for image in images}),
        "duplicates": merged,
        "contradictions": removed,
        "left_out": removed + merged + origin.unlabelled,
        **counts,
    }
    for what in ("width_px", "height_px", "quality"):
        numbers[what] = int(statistics.median_low(getattr(image, what) for image in images))
    numbers["short_side_px"] = statistics.median_low(min(i.width_px, i.height_px) for i in images)
    return numbers


def _set_row(found: Found) -> dict[str, Any]:
    images, origin, numbers = found.images, found.origin, _numbers(found)
    row: dict[str, Any] = {
        "set": found.kind,
        "title": found.title,
        "repository": origin.repository,
        "commit": origin.commit,
        "labels": origin.labels,
        "files": origin.num_files,
        "unlabelled": origin.unlabelled,
        **{key: numbers[key] for key in ("duplicates", "contradictions", "left_out")},
        "bad": len(found.bad),
        "images": len(images),
        "train": len(images) - numbers["val"],
        **{key: numbers[key] for key in ("val", "classes", "smallest_class", "largest_class", "grey")},
    }
    for what in ("width_px", "height_px", "quality"):
        values = [getattr(image, what) for image in images]
        row |= {f"{what}_min": min(values), f"{what}_median": numbers[what], f"{what}_max": max(values)}
    row["short_side_px_median"] = numbers["short_side_px"]
    row["mean_kb"] = round(statistics.fmean(image.num_bytes for image in images) / 1000, 3)
    lines = "".join(f"{image.id} {image.sha256} {image.label}\n" for image in images)
    row["list_sha256"] = hashlib.sha256(lines.encode()).hexdigest()
    return row
