"""A dataset is described by measured properties of its images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.datasets.sample import open_dataset
from pcr_exp.records.dataset_facts import (
    DatasetFacts,
    ImageFile,
    describe_dataset,
    facts_of,
    facts_of_files,
)
from pcr_exp.records.prepare import prepare_records
from pcr_exp.runs.data import dataset_facts

MakeImages = Callable[..., FolderConfig]


@pytest.fixture
def images(tmp_path: Path) -> MakeImages:
    """Function that makes class folders of 60 noisy images; `size(i)` and `quality(i)` apply to image i."""

    def make(
        size: Callable[[int], tuple[int, int]] = lambda _: (40, 32),
        quality: Callable[[int], int] = lambda _: 75,
    ) -> FolderConfig:
        rng = np.random.default_rng(0)
        for i in range(60):
            path = tmp_path / "in" / "abc"[i % 3] / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            width, height = size(i)
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path, quality=quality(i))
        return FolderConfig(name="pets", root=str(tmp_path / "in"), label="class", images_per_record=8)

    return make


def test_they_are_read_from_records_and_from_files_alike(images: MakeImages, tmp_path: Path):
    config = images(lambda i: (40 + i, 32 + i % 5), lambda i: 70 + i % 7)
    records = RecordsConfig(root=str(tmp_path / "records"), num_workers=1)
    prepare_records(config, records)
    found = facts_of_files(open_dataset(config), "class")
    assert dataset_facts(config, records) == dataset_facts(config, records, "pcr") == found
    assert (found.num_images, found.num_classes, found.num_measured) == (60, 3, 60)
    assert (found.width_px, found.height_px, found.quality) == (69, 34, 73)
    assert found.one_size is found.one_quality is False


def test_folds_of_one_dataset_are_called_the_same(images: MakeImages):
    """Only a sample of the images is measured, and it does not depend on the split."""
    config = images(lambda i: (40 + i, 32 + i % 5), lambda i: 70 + i % 7)
    whole = facts_of_files(open_dataset(config), "class", num_measured=7)
    for fold in range(3):
        folded = open_dataset(replace(config, num_folds=3, fold=fold))
        assert facts_of_files(folded, "class", num_measured=7) == whole
    assert whole.num_measured == 7


def test_classes_without_an_image_do_not_count(images: MakeImages):
    dataset = open_dataset(images())
    named = replace(dataset, classes={"class": [*dataset.classes["class"], "unicorn"]})
    assert facts_of_files(named, "class").num_classes == 3


def test_files_that_are_no_jpeg_have_no_size(tmp_path: Path, images: MakeImages):
    config = images()
    dataset = open_dataset(config)
    for path in (tmp_path / "in").rglob("*.jpg"):
        path.write_bytes(b"another codec's")
    facts = facts_of_files(dataset, "class")
    assert facts == DatasetFacts(num_images=60, num_classes=3, num_measured=0)
    assert describe_dataset("pets", facts) == "pets, three classes"


def described(name: str, files: list[tuple[int, int, int]], num_classes: int) -> str:
    facts = facts_of((ImageFile(*file) for file in files), num_images=99, num_classes=num_classes)
    return describe_dataset(name, facts)


@pytest.mark.parametrize(
    ("name", "files", "num_classes", "words"),
    [
        ("imagenet", [(224, 224, 75)] * 3, 10, "ImageNet, ten classes, 224 px, q75"),
        ("imagenet", [(500, 375, 96), (375, 500, 96)], 1000, "ImageNet, 1,000 classes, about 380 px, q96"),
        ("ham10000", [(600, 450, 100)], 7, "HAM10000, seven classes, 600 x 450 px, q100"),
        (
            "cars",
            [(500, 260, 75), (90, 80, 75), (700, 400, 76)],
            196,
            "Stanford Cars, 196 classes, about 260 px, about q75",
        ),
        ("celebahq", [(89, 109, 75)] * 2, 2, "CelebA, two classes, 89 x 109 px, q75"),
        ("celebahq", [(1024, 1024, 92)], 2, "CelebA-HQ, two classes, 1024 px, q92"),
        ("pets", [(64, 64, 90)], 11, "pets, 11 classes, 64 px, q90"),
    ],
)
def test_a_dataset_is_called_what_its_images_are(
    name: str, files: list[tuple[int, int, int]], num_classes: int, words: str
):
    assert described(name, files, num_classes) == words


def test_without_facts_the_name_is_all_that_is_known():
    assert describe_dataset("imagenet", None) == "imagenet"


def test_facts_are_plain_values():
    facts = facts_of([ImageFile(3, 2, 50)], num_images=1, num_classes=1)
    assert DatasetFacts(**asdict(facts)) == facts
