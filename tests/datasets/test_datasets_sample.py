from __future__ import annotations

from pathlib import Path

import pytest

from pcr_exp.datasets.sample import Sample, make_dataset
from pcr_exp.errors import DatasetError

CLASSES = {"kind": ["cat", "dog"]}


def samples(*ids: str, kind: int = 0) -> list[Sample]:
    return [Sample(id_, Path(id_), {"kind": kind}) for id_ in ids]


def test_order_depends_on_ids_alone():
    ids = [f"{i:03d}.jpg" for i in range(50)]
    one = make_dataset("d", samples(*ids), samples("v"), CLASSES)
    other = make_dataset("d", samples(*reversed(ids)), samples("v"), CLASSES)
    assert one == other
    assert sorted(sample.id for sample in one.train) == ids


def test_order_is_the_same_on_every_machine():
    ids = [sample.id for sample in make_dataset("d", samples(*"abcdef"), samples("v"), CLASSES).train]
    assert "".join(ids) == "dcfeab", "changing the order invalidates every record written so far"


def test_order_mixes_classes():
    train = samples(*(f"a{i:03d}" for i in range(100))) + samples(*(f"b{i:03d}" for i in range(100)), kind=1)
    kinds = [sample.labels["kind"] for sample in make_dataset("d", train, samples("v"), CLASSES).train]
    assert all(0 < sum(kinds[start : start + 20]) < 20 for start in range(0, 200, 20))


def test_empty_split():
    with pytest.raises(DatasetError, match="the val split has no picture"):
        make_dataset("d", samples("a"), [], CLASSES)


def test_id_twice():
    with pytest.raises(DatasetError, match=r"the train split lists a\.jpg twice"):
        make_dataset("d", samples("a.jpg", "b.jpg", "a.jpg"), samples("v"), CLASSES)


@pytest.mark.parametrize("labels", [{}, {"kind": 2}, {"kind": -1}, {"kind": 0, "more": 0}])
def test_label_outside_its_classes(labels: dict[str, int]):
    with pytest.raises(DatasetError, match=r"x\.jpg has labels .* wanted one class index for each of"):
        make_dataset("d", [Sample("x.jpg", Path("x.jpg"), labels)], samples("v"), CLASSES)
