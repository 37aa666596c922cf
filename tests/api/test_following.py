"""Scan policies that follow training hear of every batch, and loaders say what they still need to be told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

import pcr_exp as pcr
from pcr_exp.api.following import Observer
from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.policies.policy import StaticScan, TrialProbe, Update
from tests.api.test_loader import Open, random_crop, taken


@pytest.fixture
def open_loader() -> Iterator[Open]:
    settings = {"batch_size": 16, "num_workers": 0, "seed": 7}
    with ExitStack() as opened:
        yield lambda dataset, **given: opened.enter_context(dataset.loader(**settings | given))


def test_policies_that_follow_training_are_told_of_it(open_loader: Open, split: Path) -> None:
    scan = {"name": "balanced", "candidates": [1, 10], "every_steps": 2}
    loader = open_loader(pcr.open(split, scan=scan, label="number", transform=random_crop))
    for _ in loader:
        loader.observe(loss=1.0)
    with pytest.raises(
        LoaderError, match=r"no batch has come since the previous call\. Call it once for each"
    ):
        loader.observe(loss=1.0)
    assert loader.state_dict()["policy"]["past"][0] > 0  # images that the policy counted


def test_balanced_follows_its_floor(open_loader: Open, tmp_path: Path) -> None:
    """The floor's choice, not its lowest candidate, is what it compares its own choice with."""
    from numbered_records import encode_numbered, square_crops

    jpegs = square_crops([(10 * i, 5 * i) for i in range(8)], 200, 85)
    folder = encode_numbered(jpegs, tmp_path, images_per_record=4)
    floor = {"name": "mssim", "threshold": 0.9999, "num_images": 2}
    dataset = pcr.open(
        folder, scan={"name": "balanced", "every_steps": 2, "floor": floor}, transform=random_crop
    )
    loader = open_loader(dataset, batch_size=4)
    for _ in loader:
        loader.observe(loss=1.0)
    policy = loader.state_dict()["policy"]
    assert policy["floor_group"] == policy["floor"]["group"] > 1


def test_policies_that_follow_training_skip_no_epoch(open_loader: Open, split: Path) -> None:
    dataset = pcr.open(split, scan="plateau", label="number", transform=random_crop)
    loader = open_loader(dataset, probe=lambda wanted: dict.fromkeys(wanted.candidates, 0.0))
    loader.set_epoch(6)
    with pytest.raises(LoaderError, match=r"do not skip epochs with set_epoch\(\): the policy follows"):
        next(iter(loader))


def test_mssim_measures_before_the_first_batch(open_loader: Open, tmp_path: Path) -> None:
    from numbered_records import encode_numbered, square_crops

    jpegs = square_crops([(10 * i, 5 * i) for i in range(8)], 200, 85)
    folder = encode_numbered(jpegs, tmp_path, images_per_record=4)
    dataset = pcr.open(
        folder, scan={"name": "mssim", "threshold": 0.5, "num_images": 2}, transform=random_crop
    )
    loader = open_loader(dataset, batch_size=4)
    assert sorted(label for labels, _ in taken(iter(loader)) for label in labels) == list(range(8))
    assert loader.state_dict()["policy"]["group"] == 1


def test_policies_that_try_the_model_need_to_be_told_how(open_loader: Open, split: Path) -> None:
    scan = {"name": "plateau", "candidates": [1, 5], "group": 5, "patience_epochs": 1}
    dataset = pcr.open(split, scan=scan, label="number", transform=random_crop)
    with pytest.raises(ConfigError, match=r"tries scan groups on the model.*Give loader\(probe=\.\.\.\)"):
        open_loader(dataset)
    asked = []

    def probe(wanted: Any) -> dict[int, float]:
        asked.append(wanted)
        return dict.fromkeys(wanted.candidates, 1.0)

    loader = open_loader(dataset, probe=probe)
    with pytest.raises(LoaderError, match=r"call loader\.observe\(loss=\.\.\.\) after every batch"):
        silent = open_loader(dataset, probe=probe)
        for _ in range(5):
            for _ in silent:
                pass
    for _ in range(5):
        for _ in loader:
            loader.observe(loss=1.0)
    assert isinstance(asked[0], TrialProbe) and loader.state_dict()["policy"]["group"] == 1


def test_a_probe_without_a_score_is_refused(open_loader: Open, split: Path) -> None:
    scan = {"name": "plateau", "candidates": [1, 5], "group": 5, "patience_epochs": 1}
    dataset = pcr.open(split, scan=scan, label="number", transform=random_crop)
    loader = open_loader(dataset, probe=lambda wanted: dict.fromkeys(wanted.candidates, math.nan))
    with pytest.raises(LoaderError, match=r"wanted a finite score for every scan group, and got \{1: nan"):
        for _ in range(5):
            for _ in loader:
                loader.observe(loss=1.0)


def test_a_probe_that_nobody_answers(open_loader: Open, split: Path) -> None:
    loader = open_loader(pcr.open(split, scan="group_2", label="number", transform=random_crop))
    loader._policy.wanted_probe = lambda _: TrialProbe((1,), 1, "train")  # type: ignore[method-assign]
    with pytest.raises(LoaderError, match="the scan policy wants a TrialProbe, which needs the model"):
        next(iter(loader))


def test_training_and_waiting_are_told_apart() -> None:
    seen: list[Update] = []

    class Listening(StaticScan):
        def observe(self, update: Update) -> None:
            seen.append(update)

    now_s = 0.0
    observer = Observer(Listening(1), now=lambda: now_s)
    batch = pcr.Batch(torch.zeros(3), torch.zeros(3), 2, 0, 5, 0, 0, 1, num_repeats=0)
    for wait_s, train_s in ((5.0, 1.0), (0.5, 2.0)):
        with observer.waiting():
            now_s += wait_s
        observer.give(batch, ends_epoch=False)
        now_s += train_s
        observer.observe(0.5)
    assert [(update.wait_s, update.train_s) for update in seen] == [(5.0, 1.0), (5.5, 3.0)]
    observer.rest()
    now_s += 60  # spent on validation
    with observer.waiting():
        now_s += 0.5
    observer.give(batch, ends_epoch=False)
    now_s += 1
    observer.observe(0.5)
    assert (seen[-1].wait_s, seen[-1].train_s) == (6.0, 4.0)
    assert (seen[0].epoch, seen[0].num_images, seen[0].loss) == (2, 3, 0.5)
