"""The balanced policy on a real loader, while its storage changes."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.policies.balanced import BalancedConfig, BalancedScan
from pcr_exp.policies.consensus import SingleRank
from pcr_exp.policies.policy import StaticScan, Update
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.protocol import Storage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage


class ChangingStorage(Storage):
    """Throttled storage whose bandwidth the test changes."""

    def __init__(self, folder: Path, bandwidth_mib_per_s: float) -> None:
        self._local = LocalStorage(folder)
        self.change(bandwidth_mib_per_s)

    def change(self, bandwidth_mib_per_s: float) -> None:
        config = StorageConfig(name="changing", bandwidth_mib_per_s=bandwidth_mib_per_s)
        self._throttled = ThrottledStorage(self._local, Throttle.create(config))

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self._throttled.read(path, offset, length)

    def size(self, path: str) -> int:
        return self._local.size(path)


@pytest.mark.alone
def test_on_a_real_loader_it_follows_a_bandwidth_that_changes(
    split: Path, open_loader: Callable[..., RecordLoader]
) -> None:
    """A trainer takes 12 images in 10 ms; storage affords group 10, then 1, then 10 again."""
    images_per_s = 1200.0
    index = RecordSet(LocalStorage(split), "pcr").index
    sizes = {group: index.mean_prefix_bytes(group) for group in (1, 2, 5, 10)}
    # Far from the need of any group, so that a busy machine with a slower trainer reaches the same groups.
    plenty, little = 3 * images_per_s * sizes[10] / 2**20, 0.4 * images_per_s * sizes[2] / 2**20
    changing = ChangingStorage(split, plenty)
    storage = CountingStorage(changing)
    records = RecordSet(storage, "pcr")
    floor = ScanConfig(name="group_1", group=1)
    settings = BalancedConfig(name="balanced", floor=floor, every_steps=5, max_slowdown=0.9)
    policy = BalancedScan(settings, StaticScan(1), sizes, storage.counts, SingleRank())
    config = LoaderConfig(num_workers=0, shuffle_records=1, records_ahead=2)
    loader = open_loader(policy=policy, records=records, config=config)
    groups: list[int] = []
    train_s = wait_s = 0.0
    asked_s = time.perf_counter()
    for batch in loader.batches(0, 0, 40):
        got_s = time.perf_counter()
        wait_s += got_s - asked_s
        time.sleep(0.01)
        asked_s = time.perf_counter()
        train_s += asked_s - got_s
        groups.append(batch.group)
        count = len(batch.labels)
        policy.observe(Update(batch.epoch, False, count, count, batch.group, 1.0, train_s, wait_s))
        if len(groups) in (120, 240):
            changing.change(little if len(groups) == 120 else plenty)
    assert set(groups[60:120]) == {10}
    assert set(groups[180:240]) == {1}
    assert set(groups[300:]) == {10}
