"""A run whose primary metric is not top-1, from its configuration to its files."""

from typing import Any

import pytest

from pcr_exp.config.training import TaskConfig
from pcr_exp.errors import ConfigError
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training

SKEWED = {"training__epochs": 1, "dataset__targets": {"top1": 0.5, "balanced_accuracy": 0.9}}


def test_rows_and_manifest_tell_the_headline(configure: Any) -> None:
    config = configure(task=TaskConfig(name="balanced"), **SKEWED)
    folder = run_training(config, progress=False).folder
    manifest = read_manifest(folder / "manifest.json")
    assert (manifest.headline, manifest.target) == ("balanced_accuracy", 0.9)
    assert "-balanced-s0-" in manifest.run_id
    row = read_rows(folder / "rows.jsonl")[-1]
    known = [recall for recall in row["val_recall"].values() if recall is not None]
    assert row["val_balanced_accuracy"] == pytest.approx(sum(known) / len(known))
    assert len(row["val_recall"]) == manifest.num_classes


def test_a_headline_without_a_declared_target_is_refused(configure: Any) -> None:
    config = configure(task=TaskConfig(name="balanced"), dataset__targets={"top1": 0.5})
    with pytest.raises(
        ConfigError,
        match=r"which has no target\. Declare one before any run.*\+dataset.targets.balanced_accuracy=0.8",
    ):
        run_training(config, progress=False)


def test_auc_wants_a_label_of_two_classes(configure: Any) -> None:
    config = configure(task=TaskConfig(name="auc"), dataset__targets={"auc": 0.9})
    with pytest.raises(ConfigError, match="task=auc: the training label has"):
        run_training(config, progress=False)
