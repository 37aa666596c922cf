"""`pcr.mix(...)` trains on several datasets by shares: order, state, labels and counts."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numbered_records import encode_numbered, square_crops

import pcr_exp as pcr
from pcr_exp.api.dataset import RecordDataset
from pcr_exp.api.mixture import MixedDataset, MixtureLoader
from pcr_exp.errors import ConfigError, LoaderError, RecordError
from pcr_exp.loading.mixture import MixedSource, Mixture, epoch_counts, exact_share, interleaved
from pcr_exp.loading.order import RankShare
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

SETTINGS: dict[str, Any] = {"batch_size": 5, "image_size": 16, "num_workers": 0, "lanes": 2}
FEW = [*range(3, 9), 40, 41, *range(90, 99)]


def dataset(split: Path, scan: Any = "group_2", *, first: int = 0, **settings: Any) -> RecordDataset:
    """Open images labelled with `first` plus their number, so that labels identify the images of a batch."""
    settings = {"labels": lambda name: first + int(name)} | settings
    return pcr.open(split, scan, label="number", **settings)


@pytest.fixture
def mixture(split: Path) -> MixedDataset:
    """Mixture whose epochs take 70 images from a source of 100, and 30 from a source of 17."""
    few = dataset(split, "group_5", first=1000).select(FEW)
    return pcr.mix({"all": (dataset(split), 0.7), "few": (few, 0.3)}, epoch=100)


def numbers(batches: Any) -> list[int]:
    return [label for _, labels in batches for label in labels.tolist()]


def epochs_of(mixture: MixedDataset, num: int, **settings: Any) -> list[list[int]]:
    with mixture.loader(**SETTINGS | settings) as loader:
        return [numbers(loader) for _ in range(num)]


def test_every_epoch_has_the_counts_of_the_shares(mixture: MixedDataset) -> None:
    epochs = epochs_of(mixture, 3)
    assert [Counter(number >= 1000 for number in epoch) for epoch in epochs] == [{False: 70, True: 30}] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert mixture.counts() == {"all": 70, "few": 30} and len(mixture) == 100


def test_images_of_a_source_come_equally_often(mixture: MixedDataset) -> None:
    """In ten epochs, each of 100 images comes 7 times, and each of the 17 others comes 17 or 18 times."""
    uses = Counter(number for epoch in epochs_of(mixture, 10) for number in epoch)
    assert {uses[number] for number in range(100)} == {7}
    assert uses.keys() - set(range(100)) == {1000 + number for number in FEW}
    assert {uses[1000 + number] for number in FEW} == {17, 18}


def test_every_batch_has_about_its_share(mixture: MixedDataset) -> None:
    with mixture.loader(**SETTINGS | {"batch_size": 20}) as loader:
        found = [int((labels >= 1000).sum()) for _, labels in loader]
    assert sum(found) == 30 and set(found) <= {5, 6, 7}


@pytest.mark.parametrize(
    ("epoch", "counts"),
    [("largest", {"all": 100, "few": 43}), ("smallest", {"all": 39, "few": 17}), (11, {"all": 8, "few": 3})],
)
def test_epochs_end_with_the_largest_the_smallest_or_a_number(
    split: Path, epoch: str | int, counts: dict[str, int]
) -> None:
    sources = {"all": (dataset(split), 7), "few": (dataset(split, first=1000).select(FEW), 3)}
    mixed = pcr.mix(sources, epoch=epoch)
    (numbers_,) = epochs_of(mixed, 1)
    assert mixed.counts() == counts and len(mixed) == len(numbers_) == sum(counts.values())
    assert sum(number < 1000 for number in numbers_) == counts["all"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_goes_on_in_the_middle_of_an_epoch(mixture: MixedDataset, num_workers: int) -> None:
    with mixture.loader(**SETTINGS | {"num_workers": 2 - num_workers}) as loader:
        numbers(loader)
        for _ in islice(iter(loader), 7):
            pass
        state = json.loads(json.dumps(loader.state_dict()))
    with mixture.loader(**SETTINGS | {"num_workers": num_workers}) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    straight = _batches(mixture, 1)
    assert len(straight) == 20
    for (images, labels), (wanted_images, wanted_labels) in zip(rest, straight[7:], strict=True):
        assert torch.equal(labels, wanted_labels) and torch.equal(images, wanted_images)


def _batches(mixture: MixedDataset, epoch: int = 0, **settings: Any) -> list[tuple[Any, Any]]:
    with mixture.loader(**SETTINGS | settings) as loader:
        loader.set_epoch(epoch)
        return list(loader)


def test_a_state_goes_on_with_another_number_of_processes(mixture: MixedDataset) -> None:
    shared = SETTINGS | {"global_batch_size": 10}
    together = [labels.tolist() for _, labels in _batches(mixture, 1, **shared)]
    with mixture.loader(**shared) as loader:
        loader.set_epoch(1)
        for _ in islice(iter(loader), 6):
            pass
        state = loader.state_dict()
    found = []
    for rank in (0, 1):
        with mixture.loader(**shared, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            found.append([labels.tolist() for _, labels in loader])
    assert [batch for pair in zip(*found, strict=True) for batch in pair] == together[6:]
    assert Counter(number >= 1000 for batch in together for number in batch) == {False: 70, True: 30}


def test_a_state_of_another_mixture_is_refused(mixture: MixedDataset, split: Path) -> None:
    with mixture.loader(**SETTINGS) as loader:
        state = loader.state_dict()
    few = dataset(split, "group_5", first=1000).select([*FEW[:-1], 99])
    others = {
        "mixture was": pcr.mix({"all": (dataset(split), 0.6), "few": (few, 0.4)}, epoch=100),
        "selections was": pcr.mix({"all": (dataset(split), 0.7), "few": (few, 0.3)}, epoch=100),
        "scan was": pcr.mix({"all": (dataset(split, 3), 0.7), "few": (few, 0.3)}, epoch=100),
    }
    for said, other in others.items():
        changed = state if said != "scan was" else state | other_identity(other)
        with other.loader(**SETTINGS) as loader, pytest.raises(LoaderError, match=said):
            loader.load_state_dict(changed)
    turned = pcr.mix({"few": (few, 0.3), "all": (dataset(split), 0.7)}, epoch=100)
    with turned.loader(**SETTINGS) as loader, pytest.raises(LoaderError, match="mixture was"):
        loader.load_state_dict(state)


def other_identity(other: MixedDataset) -> dict[str, Any]:
    with other.loader(**SETTINGS) as loader:
        return {key: loader.state_dict()[key] for key in ("mixture", "selections")}


def test_bytes_and_images_are_counted_by_source(split: Path, mixture: MixedDataset) -> None:
    storages = {}
    for name, one in mixture.datasets.items():
        storages[name] = CountingStorage(LocalStorage(split))
        one.records = RecordSet(storages[name], "pcr")
        storages[name].bytes_read = 0
    with mixture.loader(**SETTINGS) as loader:
        assert {count.read_bytes for count in loader.counts.values()} == {0}
        for _ in range(2):
            numbers(loader)
        loader.close()
        counts = loader.counts
    assert {name: count.num_images for name, count in counts.items()} == {"all": 140, "few": 60}
    read = {name: storage.bytes_read for name, storage in storages.items()}
    assert {name: count.read_bytes for name, count in counts.items()} == read
    index = mixture.datasets["few"].records.index
    prefixes = [int(index.prefixes_bytes(5)[record]) for record in (0, 2, 5, 6)]
    assert read["few"] >= 3 * sum(prefixes), "three passes, each of the four records that hold one"
    assert read["all"] >= index.epoch_bytes(2)


def test_each_source_is_read_at_its_own_scan(split: Path) -> None:
    """One source follows its schedule while the other source keeps its scan group."""
    schedule = {"name": "schedule", "groups": [1, 3], "milestones": [1]}
    mixed = pcr.mix({"a": (dataset(split, schedule), 1), "b": (dataset(split, "group_2"), 1)}, epoch=200)
    with mixed.loader(**SETTINGS) as loader:
        policy = loader._policy
        groups = [
            [{policy.group(epoch, r) for r in own} for own in (range(7), range(7, 14))] for epoch in (0, 1)
        ]
        assert groups == [[{1}, {2}], [{3}, {2}]] and policy.candidates == (1, 2, 3)
        read = sum(batch.record_bytes for batch in loader._loader.batches(1, 0, 2))
    index = mixed.datasets["a"].records.index
    assert read == index.epoch_bytes(3) + index.epoch_bytes(2)


def test_a_mixture_of_groups_draws_for_a_source_what_it_draws_for_it_alone(split: Path) -> None:
    drawn = {"name": "mixture", "group": 5, "weights": [1, 1, 1]}
    mixed = pcr.mix({"a": (dataset(split), 1), "b": (dataset(split, drawn, first=1000), 1)}, epoch=200)
    with mixed.loader(**SETTINGS) as loader, dataset(split, drawn).loader(**SETTINGS) as alone:
        ours, its = loader._policy, alone._policy
        groups = [[ours.group(epoch, 7 + record) for record in range(7)] for epoch in range(3)]
        assert groups == [[its.group(epoch, record) for record in range(7)] for epoch in range(3)]
        assert len({group for epoch in groups for group in epoch}) > 1
        list(loader)
        read = loader.counts["b"].read_bytes
    index = mixed.datasets["b"].records.index
    assert read >= sum(index.prefix_bytes(record, group or 0) for record, group in enumerate(groups[0]))


def test_classes_are_those_of_all_sources(split: Path) -> None:
    few = pcr.open(split, label="parity").select([1, 3])
    every = pcr.open(split, label="number").select([0, 5])
    mixed = pcr.mix({"parity": (few, 1), "number": (every, 1)})
    assert mixed.classes[:3] == ["even", "odd", every.classes[0]]
    (found,) = epochs_of(mixed, 1)
    assert Counter(mixed.classes[label] for label in found) == {
        "odd": 2,
        every.classes[0]: 1,
        every.classes[5]: 1,
    }
    same = pcr.mix({"a": (every, 1), "b": (pcr.open(split, label="number"), 1)})
    assert same.classes == every.classes


def test_drop_last_has_the_shares_too(mixture: MixedDataset) -> None:
    (found,) = epochs_of(mixture, 1, batch_size=30, drop_last=True)
    assert Counter(number >= 1000 for number in found) == {False: 63, True: 27}
    with pytest.raises(ConfigError, match="epoch=100: wanted at least 101 images"):
        mixture.loader(**SETTINGS | {"batch_size": 101}, drop_last=True)


def test_a_transform_that_all_have_is_used(split: Path) -> None:
    def small(image: Any) -> Any:
        return np.ascontiguousarray(image[:8, :8])

    def smaller(image: Any) -> Any:
        return np.ascontiguousarray(image[:4, :4])

    one, same = (dataset(split, transform=small) for _ in range(2))
    other = dataset(split, transform=smaller)
    with pcr.mix({"a": (one, 1), "b": (same, 1)}).loader(5, num_workers=0) as loader:
        assert next(iter(loader))[0].shape == (5, 8, 8, 3)
    mixed = pcr.mix({"a": (one, 1), "b": (other, 1)})
    with pytest.raises(ConfigError, match=r"transform=.*: wanted the same for every source"):
        mixed.loader(5)
    with mixed.loader(5, transform=smaller, num_workers=0) as loader:
        assert next(iter(loader))[0].shape == (5, 4, 4, 3)


def test_damage_names_its_source_and_may_be_replaced(split: Path, tmp_path: Path) -> None:
    shutil.copytree(split / "pcr", tmp_path / "pcr")
    for path in (tmp_path / "pcr").glob("*.pcr"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    broken = dataset(tmp_path, "all", first=1000)
    mixed = pcr.mix({"whole": (dataset(split, "all"), 1), "broken": (broken, 1)}, epoch=200)
    with mixed.loader(**SETTINGS) as loader, pytest.raises(RecordError, match="source 'broken': "):
        numbers(loader)
    (found,) = epochs_of(mixed, 1, on_corrupt="replace")
    assert len({number for number in found if number >= 1000}) == 100 - 7


class ManyAtOnce(LocalStorage):
    reads_many = True


def test_several_records_by_one_call(split: Path, mixture: MixedDataset) -> None:
    for one in mixture.datasets.values():
        one.records = RecordSet(ManyAtOnce(split), "pcr")
    with mixture.loader(**SETTINGS | {"reads_in_flight": 200}) as loader:
        assert loader._loader._reading().per_call > 1
        mixed = loader._mixed
    wanted = [(8, 2), (0, 5), (9, 1)]
    for found, one_by_one in zip(
        mixed.read_prefixes(wanted), itertools.starmap(mixed.read_prefix, wanted), strict=True
    ):
        assert found.ids == one_by_one.ids and found.encoded(0) == one_by_one.encoded(0)
        assert np.array_equal(found.labels["label"], one_by_one.labels["label"])


@pytest.mark.parametrize(
    ("sources", "settings", "said"),
    [
        ({"a": 1}, {}, r"sources=\['a'\]: wanted at least two"),
        ({"a": 1, "b": 0}, {}, r"shares=\{'b': 0\}: wanted numbers above 0"),
        ({"a": 1, "b": float("nan")}, {}, r"shares=\{'b': nan\}"),
        ({"a": 1, "b": 1}, {"epoch": "longest"}, r"epoch='longest': wanted largest, smallest, or a number"),
        ({"a": 1, "b": 1}, {"epoch": 0}, r"epoch=0"),
        ({"a": 1, "b": 1e-6}, {"epoch": 50}, r"shares=\{'b': 1e-06\}: wanted larger ones, or a longer epoch"),
    ],
)
def test_shares_that_cannot_work_are_refused(
    split: Path, sources: dict[str, float], settings: dict[str, Any], said: str
) -> None:
    train = dataset(split)
    with pytest.raises(ConfigError, match=said):
        pcr.mix({name: (train, share) for name, share in sources.items()}, **settings)


def test_sources_that_do_not_fit_are_refused(split: Path) -> None:
    train = dataset(split)
    follows, empty = dataset(split, "balanced"), dataset(split)
    empty.records = RecordSet(LocalStorage(split), "pcr", index=replace(train.records.index, records=[]))
    others: dict[str, Any] = {
        "wanted records of one image codec": dataset(split, "baseline"),
        "max_pixels=": dataset(split, max_pixels=10**6),
        "labels=.* or of none": dataset(split, labels=None),
        "labels=.* rows of one length": dataset(split, labels=lambda name: [int(name), 0]),
        "follows training": follows,
        "a dataset without images": empty,
    }
    for said, other in others.items():
        with pytest.raises(ConfigError, match=said):
            pcr.mix({"a": (train, 1), "b": (other, 1)})
    with pytest.raises(ConfigError, match=r"sources\['b'\]=.*wanted a pair"):
        pcr.mix({"a": (train, 1), "b": train})  # type: ignore[dict-item]


def test_settings_that_cannot_work_are_refused(mixture: MixedDataset) -> None:
    with pytest.raises(ConfigError, match="shuffle=False: wanted True"):
        mixture.loader(**SETTINGS, shuffle=False)
    with pytest.raises(ConfigError, match=r"replace.* selection"):
        mixture.loader(**SETTINGS, on_corrupt="replace")
    with pytest.raises(ConfigError, match="batch_size=0: wanted a whole"):
        mixture.loader(**SETTINGS | {"batch_size": 0})


@given(st.lists(st.integers(1, 50), min_size=2, max_size=5), st.integers(1, 300))
def test_counts_are_the_shares_to_less_than_an_image(shares: list[int], num_images: int) -> None:
    counts = epoch_counts([Fraction(share) for share in shares], num_images)
    assert sum(counts) == num_images
    for num, share in zip(counts, shares, strict=True):
        assert abs(num - Fraction(share * num_images, sum(shares))) < 1
    turns = interleaved(counts, np.random.default_rng(0))
    assert np.bincount(turns, minlength=len(shares)).tolist() == counts


def test_a_remainder_that_sources_share_goes_to_the_first() -> None:
    assert epoch_counts([Fraction(1), Fraction(1)], 3) == [2, 1]


def test_a_share_is_the_decimal_number_that_was_typed() -> None:
    assert exact_share(0.1) == Fraction(1, 10)


def of_slot(slot: int, *, epoch: int = 0, seed: int = 3) -> list[tuple[int, int]]:
    """Return (record, sample) of a micro-batch index in a mixture of two sources of equal records."""
    mixture = Mixture({"a": MixedSource(0, [10] * 5, 50), "b": MixedSource(5, [10] * 5, 50)})
    order = mixture.order(epoch, RankShare(slot, 2, 2), batch_size=5, seed=seed, num_lanes=2, window=1)
    reads, samples, _ = order.uses(0, order.batch_start(order.num_batches))
    return list(zip(order.records[reads].tolist(), samples.tolist(), strict=True))


def test_sources_of_equal_records_have_orders_of_their_own() -> None:
    both = [*of_slot(0), *of_slot(1)]
    first = [(record, sample) for record, sample in both if record < 5]
    second = [(record - 5, sample) for record, sample in both if record >= 5]
    assert sorted(first) == sorted(second) and first != second


def test_turns_of_sources_are_drawn_for_each_slot_epoch_and_seed() -> None:
    orders = [of_slot(0), of_slot(1), of_slot(0, epoch=1), of_slot(0, seed=4)]
    assert len({tuple(record < 5 for record, _ in order) for order in orders}) == 4


@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=5), min_size=2, max_size=3),
    st.data(),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 5),
)
def test_processes_share_an_epoch_whose_order_is_its_slots(
    sizes: list[list[int]], data: st.DataObject, num_slots: int, epoch: int
) -> None:
    """Samples exist in their records, each source has its count, and processes divide the epoch exactly."""
    nums = [data.draw(st.integers(1, 12)) for _ in sizes]
    nums[0] += -sum(nums) % num_slots
    firsts = np.cumsum([0, *map(len, sizes)]).tolist()
    mixture = Mixture({str(i): MixedSource(firsts[i], own, nums[i]) for i, own in enumerate(sizes)})
    record_sizes = [size for own in sizes for size in own]

    def images(rank: int, world_size: int) -> list[tuple[int, int]]:
        share = RankShare(rank, world_size, num_slots)
        order = mixture.order(epoch, share, batch_size=2, seed=3, num_lanes=4, window=1)
        reads, samples, _ = order.uses(0, order.batch_start(order.num_batches))
        return list(zip(order.records[reads].tolist(), samples.tolist(), strict=True))

    together = images(0, 1)
    assert all(0 <= sample < record_sizes[record] for record, sample in together)
    of_source = np.bincount(np.searchsorted(firsts[1:-1], [record for record, _ in together], side="right"))
    assert of_source.tolist() == nums
    apart = [image for rank in range(num_slots) for image in images(rank, num_slots)]
    assert Counter(apart) == Counter(together)


def test_records_in_use_stay_within_the_bound_that_is_told(mixture: MixedDataset) -> None:
    for slots, world_size in ((1, 1), (2, 1), (2, 2)):
        with mixture.loader(**SETTINGS, global_batch_size=5 * slots, world_size=world_size) as loader:
            share = RankShare(0, world_size, slots)
            selection = loader._loader._selection
            assert isinstance(selection, Mixture)
            bound = selection.num_held(share, 2, 1)
            for epoch in range(4):
                order = selection.order(epoch, share, batch_size=5, seed=0, num_lanes=2, window=1)
                ends = np.sort(order.last_use)
                held = np.arange(1, len(ends) + 1) - np.searchsorted(ends, order.first_use)
                assert int(held.max()) <= bound


def test_a_record_may_be_held_for_two_passes(tmp_path: Path) -> None:
    """Two batches of an update do not enter the next pass over a source at the same time."""
    files = square_crops([(0, 0), (9, 0), (0, 9), (9, 9)], 48, 85)
    few = dataset(encode_numbered(files, tmp_path, images_per_record=4))
    mixed = pcr.mix({"a": (few, 1), "b": (few, 3)}, epoch=16)
    with mixed.loader(batch_size=2, global_batch_size=4, lanes=2, image_size=16, num_workers=0) as opened:
        loader = opened._loader
        order = loader._order(0)
        ends = np.sort(order.last_use)
        held = int((np.arange(1, len(ends) + 1) - np.searchsorted(ends, order.first_use)).max())
        assert held > len(loader._records.index.records) == 2
        largest = int(few.records.index.prefixes_bytes(2).max())
        assert loader.max_held_bytes() >= (held + loader._reading().ahead) * largest


def test_a_loader_is_one_of_datasets_too(mixture: MixedDataset) -> None:
    with mixture.loader(**SETTINGS) as loader:
        assert isinstance(loader, MixtureLoader) and len(loader) == 20
        next(iter(loader))
        loader.observe(loss=1.0)


def test_integers_and_real_numbers_together_are_float32(split: Path) -> None:
    halves = dataset(split, labels=lambda name: int(name) / 2)
    mixed = pcr.mix({"whole": (dataset(split), 1), "halves": (halves, 1)}, epoch=20)
    with mixed.loader(**SETTINGS) as loader:
        assert next(iter(loader))[1].dtype == torch.float32
