from __future__ import annotations

from pathlib import Path

import pytest

from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.datasets.sample import Dataset, Sample, make_dataset, make_images
from pcr_exp.datasets.seen import SeenFiles
from pcr_exp.errors import DatasetError

CLASSES = {"kind": ["cat", "dog"]}


def samples(*ids: str, kind: int = 0) -> list[Sample]:
    return [Sample(id_, Path(id_), {"kind": kind}) for id_ in ids]


def config(**settings: int) -> FolderConfig:
    return FolderConfig(
        name="d", label="kind", images_per_record=1, targets={"top1": 0.5}, tune_fraction=0, **settings
    )


def dataset(train: list[Sample], val: list[Sample] | None = None) -> Dataset:
    return make_dataset(config(), train, CLASSES, SeenFiles(), val=samples("v") if val is None else val)


def test_order_depends_on_ids_alone():
    ids = [f"{i:03d}.jpg" for i in range(50)]
    one = dataset(samples(*ids))
    assert one == dataset(samples(*reversed(ids)))
    assert sorted(sample.id for sample in one.train) == ids
    without = dataset(samples(*(id_ for id_ in ids if id_ != "007.jpg")))
    assert without.train == [sample for sample in one.train if sample.id != "007.jpg"]


def test_order_is_the_same_on_every_machine():
    ids = [sample.id for sample in dataset(samples(*"abcdef")).train]
    assert "".join(ids) == "dfcbea", "changing the order invalidates every record written so far"


def test_order_mixes_classes():
    train = samples(*(f"a{i:03d}" for i in range(100))) + samples(*(f"b{i:03d}" for i in range(100)), kind=1)
    kinds = [sample.labels["kind"] for sample in dataset(train).train]
    assert all(0 < sum(kinds[start : start + 20]) < 20 for start in range(0, 200, 20))


def test_empty_split():
    with pytest.raises(DatasetError, match=r"the val split has no image \(1 in all\): add images to val"):
        dataset(samples("a"), [])
    with pytest.raises(DatasetError, match="the train split has no image: 0 are in tune, 1 in val"):
        dataset([])
    with pytest.raises(DatasetError, match="d: there is no image in"):
        make_images(config(), [], CLASSES, SeenFiles())


def test_folds_are_of_the_publishers_splits_together():
    splits = {"val": samples("f"), "tune": samples("c")}
    whole = make_dataset(config(num_folds=2, fold=0), samples("a", "b"), CLASSES, SeenFiles(), **splits)
    found = {split: {sample.id for sample in chosen} for split, chosen in whole.splits.items()}
    assert found == {"train": {"a", "b", "c"}, "tune": set(), "val": {"f"}}


@pytest.mark.parametrize("val", [["v"], ["a.jpg"]])
def test_id_twice(val: list[str]):
    train = ["a.jpg", "b.jpg", *(["a.jpg"] if val == ["v"] else [])]
    with pytest.raises(DatasetError, match=r"d: a\.jpg is listed twice"):
        dataset(samples(*train), samples(*val))


@pytest.mark.parametrize("labels", [{}, {"kind": 2}, {"kind": -1}, {"kind": 0, "more": 0}])
def test_label_outside_its_classes(labels: dict[str, int]):
    with pytest.raises(DatasetError, match=r"x\.jpg has labels .* wanted one class index for each of"):
        dataset([Sample("x.jpg", Path("x.jpg"), labels)])
