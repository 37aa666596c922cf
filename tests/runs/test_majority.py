"""The manifest holds the share of the most frequent class; a target below it leads to a warning."""

import logging
from collections import Counter
from typing import Any

import pytest

from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.data import class_counts, open_data
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.task import Classification


def majority_share(records: RecordSet, label: str) -> float | None:
    return Classification().majority_share_of(class_counts(records, label))


def labels_of(records: RecordSet) -> list[int]:
    return [
        int(value)
        for number in range(len(records.index.records))
        for value in records.read_prefix(number, 1).labels["photo"]
    ]


def test_the_share_is_counted_from_the_labels(configure: Any) -> None:
    records = open_data(configure()).val
    labels = labels_of(records)
    assert majority_share(records, "photo") == max(Counter(labels).values()) / len(labels)


def test_only_the_images_that_are_looked_at_count(configure: Any) -> None:
    records = open_data(configure(dataset__max_val_images=3)).val
    assert majority_share(records, "photo") == max(Counter(labels_of(records)[:3]).values()) / 3


@pytest.mark.parametrize(("target", "warned"), [(0.05, True), (1.0, False)])
def test_a_target_that_always_saying_the_same_reaches_is_warned_of(
    configure: Any, caplog: pytest.LogCaptureFixture, target: float, warned: bool
) -> None:
    config = configure(dataset__targets={"top1": target}, training__epochs=1)
    with caplog.at_level(logging.WARNING):
        folder = run_training(config, progress=False).folder
    assert ("dataset.targets.top1=0.05: " in caplog.text) is warned
    share = read_manifest(folder / "manifest.json").majority_share
    assert share == majority_share(open_data(config).val, "photo")
