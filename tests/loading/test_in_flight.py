"""How many reads the loader has under way, where the storage's settings say so."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.storage import StorageConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

OpenLoader = Callable[..., RecordLoader]


class HoldingStorage(LocalStorage):
    """Lets no read of a record end before so many are under way, or some seconds have passed."""

    def __init__(self, root: Path, num_awaited: int) -> None:
        super().__init__(root)
        self.num_awaited = num_awaited
        self.most = 0
        self._num_in_flight = 0
        self._lock = threading.Lock()
        self._enough = threading.Event()

    def read(self, path: str, offset: int, length: int) -> bytes:
        if not path.endswith(".pcr"):
            return super().read(path, offset, length)
        with self._lock:
            self._num_in_flight += 1
            self.most = max(self.most, self._num_in_flight)
            if self.most >= self.num_awaited:
                self._enough.set()
        self._enough.wait(5)
        with self._lock:
            self._num_in_flight -= 1
        return super().read(path, offset, length)


@pytest.mark.parametrize(("wanted", "most"), [(6, 6), (2, 2), (None, 4)])
def test_as_many_reads_are_in_flight_as_are_asked_for(
    split: Path, open_loader: OpenLoader, wanted: int | None, most: int
) -> None:
    """Of seven records; storage whose rates are not known gets four."""
    storage = HoldingStorage(split, num_awaited=most)
    loader = open_loader(
        records=RecordSet(storage, "pcr"),
        config=LoaderConfig(num_workers=0, shuffle_records=1),
        storage_config=StorageConfig(name="far", reads_in_flight=wanted),
    )
    next(loader.batches(0, 0, 3))
    loader.close()
    assert storage.most == most


def test_the_budget_of_memory_does_not_lower_what_is_asked_for(
    open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcr_exp.loading.fetch._MAX_AHEAD_BYTES", 1)
    as_asked = open_loader(storage_config=StorageConfig(name="far", reads_in_flight=40))
    assert as_asked._reading() == (40, 40)
    sized = open_loader(storage_config=StorageConfig(name="far", bandwidth_mib_per_s=1, latency_ms=4000))
    in_flight, ahead = sized._reading()
    assert in_flight > 40 and ahead == 2
