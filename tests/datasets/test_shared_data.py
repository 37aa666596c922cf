"""Readers find the counts of ../shared/data/README.md in real photographs in the official layouts."""

from __future__ import annotations

import csv
from pathlib import Path

from pcr_exp.datasets.sample import Dataset, open_dataset


def check_files(dataset: Dataset) -> None:
    ids = [sample.id for chosen in dataset.splits.values() for sample in chosen]
    assert len(set(ids)) == len(ids)
    fit = len(dataset.train) + len(dataset.tune)
    assert abs(len(dataset.tune) - 0.1 * fit) < 4 * (0.09 * fit) ** 0.5
    assert all(sample.path.is_file() for sample in dataset.train + dataset.tune + dataset.val)


def test_imagenet(shared_data: Path, make_config):
    dataset = open_dataset(make_config("imagenet", tune_fraction=0.1, root=str(shared_data / "imagenet")))
    fit = len(dataset.train) + len(dataset.tune)
    assert (fit, len(dataset.val), len(dataset.classes["wnid"])) == (4000, 1000, 10)
    check_files(dataset)


def test_ham10000(shared_data: Path, make_config):
    root = shared_data / "ham10000"
    with (root / "HAM10000_metadata.csv").open() as file:
        lesions = {row["image_id"]: row["lesion_id"] for row in csv.DictReader(file)}
    for split in ("lesion", "file"):
        dataset = open_dataset(make_config("ham10000", tune_fraction=0.1, root=str(root), split=split))
        assert len(dataset.train) + len(dataset.tune) + len(dataset.val) == 2561
        assert {sample.labels["dx"] for sample in dataset.val} == set(range(7))
        assert abs(len(dataset.val) / 2561 - 0.2) < 0.02
        check_files(dataset)
        train, val = ({lesions[s.path.stem] for s in part} for part in (dataset.train, dataset.val))
        # this subset has one photograph of each lesion, so the file split leaks none either
        assert not train & val


def test_cars(shared_data: Path, make_config):
    dataset = open_dataset(make_config("cars", tune_fraction=0.1, root=str(shared_data / "cars")))
    assert (len(dataset.train) + len(dataset.tune), len(dataset.val)) == (1070, 268)
    assert {label: len(names) for label, names in dataset.classes.items()} == {
        "model": 196,
        "make": 49,
        "is_corvette": 2,
    }
    samples = dataset.train + dataset.tune + dataset.val
    assert len({sample.labels["model"] for sample in samples}) == 32
    assert len({sample.labels["make"] for sample in samples}) == 7
    assert 115 <= sum(sample.labels["is_corvette"] for sample in samples) <= 135
    check_files(dataset)


def test_celebahq(shared_data: Path, make_config):
    for folder, num in (("celebahq", 5000), ("celebahq_178", 548)):
        dataset = open_dataset(make_config("celebahq", tune_fraction=0.1, root=str(shared_data / folder)))
        assert len(dataset.train) + len(dataset.tune) + len(dataset.val) == num
        smiling = sum(sample.labels["smiling"] for sample in dataset.train + dataset.tune + dataset.val)
        assert 0.4 < smiling / num < 0.6
        check_files(dataset)
