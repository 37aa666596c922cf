"""Validation images: what is read, from where, and how often."""

from typing import Any

import pytest
import torch

from pcr_exp.errors import ConfigError, RecordError
from pcr_exp.loading.loader import Batch, RecordLoader
from pcr_exp.runs.data import ValidationBatches, open_data, training_loader, validation_loader
from pcr_exp.storage.throttle import ThrottledStorage
from pcr_exp.training.distributed.processes import Processes


@pytest.fixture
def val_loader(configure: Any) -> Any:
    config = configure(scan__group=1, storage__latency_ms=200.0)
    with validation_loader(config, open_data(config)) as loader:
        yield loader


@pytest.mark.parametrize("cache_bytes", [2**30, 0])
def test_each_evaluation_sees_every_image_once_and_the_same(
    val_loader: RecordLoader, cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    original = RecordLoader.batches
    monkeypatch.setattr(RecordLoader, "batches", lambda *args: reads.append(1) or original(*args))
    batches = ValidationBatches(val_loader, 32, cache_bytes)
    first, second = (torch.cat([batch.images for batch in batches]) for _ in range(2))
    assert first.shape == (20, 32, 32, 3)
    assert torch.equal(first, second)
    assert len(reads) == (1 if cache_bytes else 2)


def test_it_is_read_at_full_fidelity_and_never_throttled(configure: Any) -> None:
    throttled = configure(scan__group=1, storage__latency_ms=60_000.0, storage__name="slow")
    free = configure()
    pixels = []
    for config in (throttled, free):
        # Opening training records at that latency would take minutes; only the loader's side is looked at.
        data = open_data(configure())
        assert data.val.index.encoding == "baseline"
        with validation_loader(config, data) as loader:
            batches: list[Batch] = list(ValidationBatches(loader, 32))
        assert {batch.group for batch in batches} == {1}
        pixels.append(torch.cat([batch.images for batch in batches]))
    assert torch.equal(*pixels)


def test_training_bytes_are_counted_and_validation_s_are_not(configure: Any) -> None:
    config = configure()
    data = open_data(config)
    index_bytes = data.storage.bytes_read
    assert index_bytes > 0
    from pcr_exp.policies.policy import StaticScan

    with validation_loader(config, data) as loader:
        list(loader.batches(0, 0, 1))
    assert data.storage.bytes_read == index_bytes
    with training_loader(config, data, StaticScan(config.scan.group), Processes()) as loader:
        total = sum(batch.record_bytes for batch in loader.batches(0, 0, 1))
    assert data.storage.bytes_read - index_bytes == total == data.train.index.epoch_bytes(5)


def test_a_label_that_the_records_lack(configure: Any) -> None:
    with pytest.raises(ConfigError, match=r"dataset.label='colour'.*have focus, photo"):
        open_data(configure(dataset__label="colour"))


def test_without_auto_prepare_missing_records_are_an_error(configure: Any, tmp_path: Any) -> None:
    config = configure(records__root=str(tmp_path / "none"), records__auto_prepare=False)
    with pytest.raises(RecordError, match=r"experiments\.prepare"):
        open_data(config)


def test_records_elsewhere_are_read_and_never_made(configure: Any) -> None:
    config = configure()
    config.records.root = f"file://{config.records.root}"
    assert open_data(config).num_classes("photo") == 8


def test_validation_reads_with_as_many_in_flight_as_training_and_is_not_throttled(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(scan__group=1, storage__seek_ms=1.0, storage__reads_in_flight=9)
    with validation_loader(config, open_data(config)) as loader:
        monkeypatch.delattr(ThrottledStorage, "read")  # that training would read through
        assert loader._reading()[0] == 9
        assert len(next(loader.batches(0, 0, 1)).labels) > 0
