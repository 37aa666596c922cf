"""`train.select(...)` limits batches, order, reads and resumes to some images of a split."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcr_exp as pcr
from pcr_exp.api.dataset import RecordDataset
from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.loading.lanes import SampleIndices
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.selection import Selection
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage

SOME = [*range(3, 9), 40, 41, *range(90, 99)]
"""Images of records 0, 2, 5 and 6 of seven."""


@pytest.fixture
def train(split: Path) -> RecordDataset:
    return pcr.open(split, scan="group_2", label="number")


def epochs_of(dataset: RecordDataset, num: int, **settings: Any) -> list[list[int]]:
    settings = {"batch_size": 4, "image_size": 16, "num_workers": 0, "seed": 7} | settings
    with dataset.loader(**settings) as loader:
        return [[label for _, labels in loader for label in labels.tolist()] for _ in range(num)]


def test_an_epoch_has_each_selected_image_once_and_no_other(train: RecordDataset) -> None:
    first, second = epochs_of(train.select(SOME), 2)
    assert sorted(first) == sorted(second) == SOME and first != second
    assert epochs_of(train.select(reversed(SOME)), 1, shuffle=False) == [SOME]


def test_processes_share_a_selection(train: RecordDataset) -> None:
    of_ranks = [epochs_of(train.select(range(20, 60)), 1, rank=rank, world_size=2)[0] for rank in (0, 1)]
    assert sorted(of_ranks[0] + of_ranks[1]) == list(range(20, 60))


def test_only_records_that_hold_one_are_read(
    open_loader: Callable[..., RecordLoader], records: RecordSet, storage: CountingStorage
) -> None:
    loader = open_loader(selection=Selection(np.array(SOME), records.index.sizes), shuffle=False)
    for _ in loader.batches(0, 0, 1):
        pass
    wanted = [0, 2, 5, 6]
    assert storage.num_reads == len(wanted)
    assert storage.bytes_read == sum(int(records.index.prefixes_bytes(5)[record]) for record in wanted)


def test_a_state_goes_on_in_the_middle_of_an_epoch(train: RecordDataset) -> None:
    selected = train.select(SOME)
    settings: dict[str, Any] = {"batch_size": 4, "image_size": 16, "num_workers": 0, "seed": 7}
    (straight,) = epochs_of(selected, 1)
    with selected.loader(**settings) as loader:
        begun = [label for _, labels in islice(iter(loader), 2) for label in labels.tolist()]
        state = json.loads(json.dumps(loader.state_dict()))
    with train.select(SOME).loader(**settings) as loader:
        loader.load_state_dict(state)
        assert begun + [label for _, labels in loader for label in labels.tolist()] == straight
    for other, said in ((train, "num_samples"), (train.select([*SOME[:-1], 99]), "selection")):
        with other.loader(**settings) as loader, pytest.raises(LoaderError, match=f"{said} was"):
            loader.load_state_dict(state)


def test_images_are_selected_by_their_rows(train: RecordDataset) -> None:
    odd = train.select(lambda row: row["labels"]["parity"] == "odd")
    assert [label for _, label in odd] == list(range(1, 100, 2)) == odd.targets
    late = odd.select(lambda row: row["index"] >= 45 and int(row["label"]) > 92)
    assert late.targets == [93, 95, 97, 99]
    assert late.id(0) == train.id(93) and late.encoded(-1) == train.encoded(99)


def test_head(train: RecordDataset) -> None:
    assert train.head(5).targets == [0, 1, 2, 3, 4]
    assert train.select(SOME).head(2).targets == SOME[:2]
    assert len(train.head(1000)) == len(train) == 100


def test_epochs_of_a_selection_are_its_own(split: Path) -> None:
    scan = {"name": "schedule", "groups": [1, 2], "milestones": [1]}
    train = pcr.open(split, scan=scan, label="number", seed=0)
    selected = train.select(SOME)
    selected.set_epoch(1)
    assert int(train._epoch) == 0 and int(selected._epoch) == 1


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ([100], r"select=100: wanted indices of these 100 images, 0..99, each once"),
        ([-1], "select=-1"),
        ([4, 4], "select=4: .* it is given twice"),
        ([], "select='no image': wanted at least one of 100"),
        (lambda _: False, "select='no image'"),
    ],
)
def test_what_cannot_be_selected_is_said(train: RecordDataset, which: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        train.select(which)


def test_head_of_nothing(train: RecordDataset) -> None:
    with pytest.raises(ConfigError, match="head=0: wanted at least 1"):
        train.head(0)


def test_a_damaged_image_is_not_replaced_by_one_that_was_left_out(train: RecordDataset) -> None:
    with pytest.raises(ConfigError, match=r"replace.* selection"):
        train.select(SOME).loader(batch_size=4, image_size=16, on_corrupt="replace")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_places_are_those_of_the_images(sizes: list[int], data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, sum(sizes) - 1), min_size=1)))
    selection = Selection(np.array(chosen), sizes)
    assert sum(selection.sizes) == len(selection) == len(chosen)
    records = np.repeat(np.arange(len(selection.sizes)), selection.sizes)
    samples = np.concatenate([np.arange(size) for size in selection.sizes])
    located = selection.locate(SampleIndices(records, samples))
    starts = np.cumsum([0, *sizes])
    assert (starts[located.records] + located.samples).tolist() == chosen


def test_a_probe_looks_at_selected_images_alone(tmp_path: Path) -> None:
    from numbered_records import encode_numbered, square_crops

    jpegs = square_crops([(10 * i, 5 * i) for i in range(8)], 200, 85)
    folder = encode_numbered(jpegs, tmp_path, images_per_record=4)
    scan = {"name": "mssim", "threshold": 0.5, "num_images": 2}
    chosen = pcr.open(folder, scan).select(range(4, 8))
    seen: list[int] = []
    read = chosen.records.read_prefix
    chosen.records.read_prefix = lambda record, group: seen.append(record) or read(record, group)  # type: ignore
    with chosen.loader(4, image_size=32, num_workers=0) as loader:
        next(iter(loader))
    assert set(seen) == {1}
