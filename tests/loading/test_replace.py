"""Damaged images are replaced by others of their record, which depend on the seed and epoch alone."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from record_fixtures import NUM_SAMPLES

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.errors import ConfigError, RecordError
from pcr_exp.loading.echo.variants import BatchEchoConfig, ExampleAfterConfig, ExampleBeforeConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.reads import read_with_replacements
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage


class DamagedStorage(LocalStorage):
    """Changes one byte of the third and of the fifth image of the first record, in group 2."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        bounds = RecordSet(LocalStorage(root), "pcr").read_prefix(0, 2).bounds(2)
        self.places = [int(bounds[2]), int(bounds[4]) + 1]

    def read(self, path: str, offset: int, length: int) -> bytes:
        data = bytearray(super().read(path, offset, length))
        for place in self.places if path.endswith("record-000000.pcr") else ():
            if offset <= place < offset + length:
                data[place - offset] ^= 0xFF
        return bytes(data)


@pytest.fixture
def damaged(split: Path) -> RecordSet:
    return RecordSet(DamagedStorage(split), "pcr")


def test_others_of_the_record_stand_in(damaged: RecordSet, caplog: pytest.LogCaptureFixture) -> None:
    whole = RecordSet(LocalStorage(damaged.storage.root), "pcr").read_prefix(0, 5)  # type: ignore[attr-defined]
    with pytest.raises(RecordError, match="image 2, counted from 0 to"):
        damaged.read_prefix(0, 5)
    with caplog.at_level(logging.WARNING, "pcr_exp"):
        prefix = read_with_replacements(damaged, 0, 5, seed=3, epoch=0)
    assert sorted(prefix.replaced) == [2, 4]
    assert not {2, 4} & set(prefix.replaced.values())
    for i in range(len(whole)):
        stands_in = prefix.replaced.get(i, i)
        assert prefix.encoded(i) == whole.encoded(stands_in)
        assert prefix.ids[i] == whole.ids[stands_in]
        assert prefix.labels["number"][i] == whole.labels["number"][stands_in]
    assert " on_corrupt=replace: in epoch 1" in caplog.text
    again = read_with_replacements(damaged, 0, 5, seed=3, epoch=0)
    others = [dict(read_with_replacements(damaged, 0, 5, seed=3, epoch=epoch).replaced) for epoch in range(6)]
    assert dict(again.replaced) == others[0]
    assert len({tuple(each.values()) for each in others}) > 1, "another in another epoch"
    assert not read_with_replacements(damaged, 0, 1, seed=3, epoch=0).replaced, "group 1 is whole"


def test_batches_count_them(damaged: RecordSet, open_loader: Callable[..., RecordLoader]) -> None:
    failing = open_loader(records=damaged)
    with pytest.raises(RecordError, match="damaged"):
        list(failing.batches(0, 0, 1))
    replacing = LoaderConfig(num_workers=0, lanes=4, on_corrupt="replace")
    batches = list(open_loader(records=damaged, config=replacing).batches(0, 0, 1))
    assert sum(batch.num_replaced for batch in batches) == 2
    numbers = np.concatenate([batch.labels.numpy() for batch in batches])
    assert len(numbers) == NUM_SAMPLES and len(set(numbers.tolist())) >= NUM_SAMPLES - 2
    assert not {2, 4} & set(numbers.tolist())


@pytest.mark.parametrize(
    "echo",
    [ExampleBeforeConfig(factor=2), ExampleAfterConfig(factor=2), BatchEchoConfig(factor=2)],
    ids=lambda echo: echo.name,
)
def test_batches_count_them_as_often_as_they_are_trained_on(
    damaged: RecordSet, open_loader: Callable[..., RecordLoader], echo: EchoConfig
) -> None:
    replacing = LoaderConfig(num_workers=0, lanes=4, on_corrupt="replace")
    plain = list(open_loader(records=damaged, config=replacing).batches(0, 0, 1))
    stand_ins = [batch.images[i] for batch in plain for i in batch.replaced]
    assert len(stand_ins) == 2
    batches = list(open_loader(records=damaged, config=replacing, echo=echo).batches(0, 0, 1))
    assert sum(batch.num_replaced for batch in batches) == 4
    if echo.name != "example_before":  # whose repeats are augmented afresh
        found = [batch.images[i] for batch in batches for i in batch.replaced]
        assert all(sum(torch.equal(image, one) for image in found) == 2 for one in stand_ins)
    resumed = open_loader(records=damaged, config=replacing, echo=echo).batches(0, 5, 1)
    assert [batch.replaced for batch in resumed] == [batch.replaced for batch in batches[5:]]


def test_what_is_lost_as_a_whole_is_still_an_error(damaged: RecordSet) -> None:
    storage = damaged.storage
    assert isinstance(storage, DamagedStorage)
    group_1_end = damaged.index.prefix_bytes(0, 1)
    storage.places = [group_1_end]  # the length of the first image
    with pytest.raises(RecordError, match="its pieces end at byte"):
        read_with_replacements(damaged, 0, 5, seed=3, epoch=0)
    bounds = RecordSet(LocalStorage(storage.root), "pcr").read_prefix(0, 1).bounds(1)
    storage.places = bounds[:-1].tolist()
    with pytest.raises(RecordError, match="the checksum does not match"):
        read_with_replacements(damaged, 0, 5, seed=3, epoch=0)
    with pytest.raises(ConfigError, match=r"loader\.on_corrupt"):
        LoaderConfig(on_corrupt="ignore")
