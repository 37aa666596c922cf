"""Cross-validation: every image validates once, groups stay together, and new images move no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.records import records_name
from pcr_exp.datasets.sample import fold_of, open_dataset, split_of
from pcr_exp.errors import ConfigError, DatasetError

MakeConfig = Callable[..., DatasetConfig]
PETS = "pets-dc9026b5"
"""Name of a dataset's records from before folds existed."""
names = st.lists(st.text(min_size=1), min_size=1, max_size=60, unique=True)
NAMES = [f"{i:04d}.jpg" for i in range(200)]


def lay(root: Path, split: str, first: int, end: int) -> None:
    for i in range(first, end):
        path = root / split / ("cat" if i % 3 else "dog") / NAMES[i]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def ids(config: DatasetConfig) -> dict[str, set[str]]:
    dataset = open_dataset(config)
    return {split: {sample.id for sample in samples} for split, samples in dataset.splits.items()}


@given(names, st.text(min_size=1), st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_a_new_image_moves_no_other(groups: list[str], new: str, num_folds: int, seed: int):
    before = {group: fold_of(group, num_folds, seed) for group in groups}
    assert {group: fold_of(group, num_folds, seed) for group in [*groups, new]}.items() >= before.items()
    assert set(before.values()) <= set(range(num_folds))


def test_folds_are_as_large_as_each_other():
    counts = Counter(fold_of(f"ISIC_{i:07d}", 5, 42) for i in range(10_000))
    assert all(abs(count - 2000) < 160 for count in counts.values())  # four standard deviations


def test_membership_is_the_same_on_every_machine():
    found = [fold_of(f"{i}.jpg", 5, 42) for i in range(12)]
    assert found == [0, 0, 2, 1, 0, 4, 2, 2, 1, 2, 3, 2], (
        "changing membership changes what every run is trained on and reported on"
    )


def test_what_is_tuned_by_has_nothing_to_do_with_the_fold():
    groups = [f"{i}.jpg" for i in range(20_000)]
    tuned = [g for g in groups if split_of(g, val_fraction=0, tune_fraction=0.1, seed=42) == "tune"]
    counts = Counter(fold_of(g, 5, 42) for g in tuned)
    assert all(abs(count - len(tuned) / 5) < 75 for count in counts.values())


def test_every_image_validates_once(tmp_path: Path, make_config: MakeConfig):
    lay(tmp_path, "train", 0, 150)
    lay(tmp_path, "val", 150, 200)
    config = make_config("folder", num_folds=5, tune_fraction=0.1)
    folds = [ids(replace(config, fold=fold)) for fold in range(5)]
    validated = [fold["val"] for fold in folds]
    assert sum(map(len, validated)) == len(set().union(*validated)) == 200
    for fold in folds:
        assert not fold["val"] & (fold["train"] | fold["tune"]) and len(set().union(*fold.values())) == 200
        assert 0.04 < len(fold["tune"]) / (200 - len(fold["val"])) < 0.18
        assert any(id_.startswith("train/") for id_ in fold["val"])  # images of the publisher's train, too
    lay(tmp_path, "train", 150, 160)  # new images: ids begin with the folder, train/
    for fold, before in enumerate(folds):
        after = ids(replace(config, fold=fold))
        assert all(after[split] >= before[split] for split in after)


def test_lesions_are_in_one_fold(tmp_path: Path, make_config: MakeConfig, put: Callable[..., None]):
    images = [(f"ISIC_{i:07d}", f"HAM_{i // 3:07d}") for i in range(300)]
    put(*(f"HAM10000_images_part_1/{image}.jpg" for image, _ in images), "HAM10000_images_part_2/.keep")
    rows = "".join(f"{lesion},{image},{'nv' if lesion[-1] > '3' else 'mel'}\n" for image, lesion in images)
    (tmp_path / "HAM10000_metadata.csv").write_text("lesion_id,image_id,dx\n" + rows)
    config = make_config("ham10000", num_folds=4, tune_fraction=0.1)
    lesion_of = {f"HAM10000_images_part_1/{image}.jpg": lesion for image, lesion in images}
    for fold in range(4):
        found = ids(replace(config, fold=fold))
        lesions = {split: {lesion_of[id_] for id_ in of_split} for split, of_split in found.items()}
        assert sum(map(len, lesions.values())) == 100 and len(set().union(*lesions.values())) == 100


def test_images_of_a_users_group_are_in_one_fold(tmp_path: Path, make_config: MakeConfig):
    lay(tmp_path, ".", 0, 200)
    config = make_config("folder", num_folds=3, tune_fraction=0.1, group_by=r"/(\d{3})\d\.jpg")
    for fold in range(3):
        found = ids(replace(config, fold=fold))
        groups = [{Path(id_).name[:3] for id_ in of_split} for of_split in found.values()]
        assert sum(map(len, groups)) == len(set().union(*groups)) == 20


def test_without_folds_nothing_changes(tmp_path: Path, make_config: MakeConfig):
    lay(tmp_path, ".", 0, 200)
    config = make_config("folder", tune_fraction=0.1)
    samples = {id_: split for split, of_split in ids(config).items() for id_ in of_split}
    for id_, split in samples.items():
        assert split == split_of(id_, val_fraction=0.2, tune_fraction=0.1, seed=42)


def test_records_of_folds_are_told_apart_and_those_without_keep_their_names(make_config: MakeConfig):
    config = make_config("folder", name="pets", root=None)
    assert records_name(config) == PETS, "records that exist would be made again"
    of_folds = [records_name(replace(config, num_folds=5, fold=fold)) for fold in range(5)]
    assert len({*of_folds, records_name(replace(config, num_folds=4, fold=0)), PETS}) == 7
    assert all(name.startswith(f"pets-fold_{fold}_of_5-") for fold, name in enumerate(of_folds))
    other_share = replace(config, num_folds=5, fold=0, val_fraction=0.3)
    assert records_name(other_share) == of_folds[0], "the fold validates, whatever share is held out without"


def test_folds_without_a_choice_of_one(tmp_path: Path, make_config: MakeConfig):
    lay(tmp_path, ".", 0, 20)
    with pytest.raises(ConfigError, match=r"dataset.fold=null.*dataset.fold=0 to 4, or.*0,1,2,3,4"):
        open_dataset(make_config("folder", num_folds=5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fold": 0}, r"dataset.fold=0: wanted null, because dataset.num_folds is null"),
        ({"fold": 5, "num_folds": 5}, r"dataset.fold=5: wanted null or 0 to 4"),
        ({"fold": -1, "num_folds": 5}, r"dataset.fold=-1: wanted null or 0 to 4"),
        ({"num_folds": 1}, r"dataset.num_folds=1: wanted null or 2 or more"),
        ({"num_folds": 0}, r"dataset.num_folds=0: wanted null or 2 or more"),
        ({"num_folds": -2}, r"dataset.num_folds=-2: wanted null or 2 or more"),
    ],
)
def test_folds_that_cannot_be(settings: dict[str, int], message: str, make_config: MakeConfig):
    with pytest.raises(ConfigError, match=message):
        make_config("folder", **settings)


@pytest.mark.parametrize(("kind", "other"), [("ham10000", "lesion"), ("celebahq", "hash")])
def test_the_papers_split_has_no_folds(kind: str, other: str, make_config: MakeConfig):
    with pytest.raises(ConfigError, match=f"dataset.split='file': wanted {other}, with dataset.num_folds"):
        make_config(kind, num_folds=5, split="file")


def test_a_fold_without_an_image_says_what_to_do(tmp_path: Path, make_config: MakeConfig):
    lay(tmp_path, ".", 0, 6)
    config = make_config("folder", num_folds=40)
    classes = ("cat", "dog")
    used = {fold_of(f"{name}/{image}", 40, 42) for name in classes for image in NAMES[:6]}
    empty = min(set(range(40)) - used)
    with pytest.raises(
        DatasetError, match=r"no image \(6 in all\): add images, or lower dataset.num_folds \(40\)"
    ):
        open_dataset(replace(config, fold=empty))


def test_folds_of_the_embedded_dataset_are_remarked_on(make_config: MakeConfig):
    small = {"num_train": 32, "num_val": 16, "size_px": 64}
    dataset = open_dataset(make_config("photos", num_folds=2, fold=0, **small))
    assert any("not to report results" in remark for remark in dataset.seen.all_remarks())
