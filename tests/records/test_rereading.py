"""Damaged reads from remote storage are repeated once; reads from a disk are not."""

import logging
from pathlib import Path

import pytest
from records_storage import MemoryStorage

from pcr_exp.errors import RecordError
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages
from pcr_exp.storage.cache import CachedStorage, DiskCache, MemoryCache
from tests.records.test_format import small, write


class DamagingStorage(MemoryStorage):
    """Cuts the next `num_bad` reads of records short, or changes their last byte."""

    def __init__(self, *, is_remote: bool, cut: bool) -> None:
        super().__init__(write(*small()))
        self.is_remote = is_remote
        self.cut = cut
        self.num_bad = 0
        self.num_reads = 0

    def read(self, path: str, offset: int, length: int) -> bytes:
        data = super().read(path, offset, length)
        if not path.endswith(".pcr"):
            return data
        self.num_reads += 1
        if not self.num_bad:
            return data
        self.num_bad -= 1
        return data[:-1] if self.cut else data[:-1] + bytes([data[-1] ^ 1])

    def __str__(self) -> str:
        return "far://away"


@pytest.mark.parametrize("cut", [True, False])
def test_remote_storage_has_a_second_chance(cut: bool, caplog: pytest.LogCaptureFixture) -> None:
    storage = DamagingStorage(is_remote=True, cut=cut)
    records = RecordSet(storage, "s")
    whole = records.read_prefix(0, 3)
    storage.num_bad, storage.num_reads = 1, 0
    with caplog.at_level(logging.WARNING, "pcr_exp"):
        assert records.read_prefix(0, 3).encoded(0) == whole.encoded(0)
    assert storage.num_reads == 2
    assert "It is read once more, since it came from far://away" in caplog.text
    prefix = records.read_prefix(0, 1)
    storage.num_bad, storage.num_reads = 1, 0
    assert prefix.extended(records.read_extension(0, 1, 3)).encoded(0) == whole.encoded(0)
    assert storage.num_reads == 2


@pytest.mark.parametrize("cut", [True, False])
def test_and_no_third_one(cut: bool) -> None:
    storage = DamagingStorage(is_remote=True, cut=cut)
    records = RecordSet(storage, "s")
    storage.num_bad = 3
    words = "cut short" if cut else "damaged"
    with pytest.raises(
        RecordError, match=rf"{words}.*It was read twice from far://away, and was damaged both"
    ):
        records.read_prefix(0, 3)
    assert storage.num_reads == 2


def test_single_images_have_a_second_chance_too() -> None:
    storage = DamagingStorage(is_remote=True, cut=False)
    records = RecordSet(storage, "s")
    wanted = records.read_prefix(0, 2).encoded(0)
    images = SingleImages(records)
    # Reads: header with a table, a piece, another table (its group 2 is empty). The tables are cached, so
    # then only the piece. If it is damaged, the cached tables may be too, and everything is read again.
    for num_bad, num_reads in ((0, 3), (0, 1), (1, 1 + 3)):
        storage.num_bad, storage.num_reads = num_bad, 0
        assert images.read(0, 0, 2) == wanted
        assert storage.num_reads == num_reads
    storage.num_bad = 1
    assert images.read_piece(0, 1, 1) == b"b1b1"
    storage.num_bad = 10
    with pytest.raises(RecordError, match=r"image . in group . .*It was read twice from far://a") as raised:
        images.read(0, 1, 2)
    assert str(raised.value).count("twice") == 1


def test_a_disk_is_read_once() -> None:
    storage = DamagingStorage(is_remote=False, cut=False)
    records = RecordSet(storage, "s")
    storage.num_bad = 1
    with pytest.raises(RecordError) as raised:
        records.read_prefix(0, 3)
    assert storage.num_reads == 1
    assert "twice" not in str(raised.value)


@pytest.mark.parametrize("is_remote", [True, False])
@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("in_memory", [True, False])
def test_no_damage_stays_in_a_cache(is_remote: bool, cut: bool, in_memory: bool, tmp_path: Path) -> None:
    """Cached bytes of a damaged transfer are dropped, for this run and later ones."""
    storage = DamagingStorage(is_remote=is_remote, cut=cut)
    cache = MemoryCache(10**6) if in_memory else DiskCache(tmp_path, 10**6)
    records = RecordSet(CachedStorage(storage, cache), "s")
    wanted = RecordSet(storage, "s").read_prefix(0, 3).encoded(0)
    storage.num_bad, storage.num_reads = 1, 0
    assert records.read_prefix(0, 3).encoded(0) == wanted
    assert records.read_prefix(0, 3).encoded(0) == wanted
    assert storage.num_reads == 2, "the third came from the cache"
    assert cache.forget(records.path(0)) and cache.num_bytes == 0
    storage.num_bad = 2
    with pytest.raises(RecordError, match="damaged both times"):
        records.read_prefix(0, 3)
    assert cache.num_bytes == 0 and not cache.forget(records.path(0))
    assert records.read_prefix(0, 3).encoded(0) == wanted


def test_a_group_that_there_is_not_is_not_read_twice() -> None:
    storage = DamagingStorage(is_remote=True, cut=False)
    records = RecordSet(storage, "s")
    for ask in (lambda: records.read_prefix(0, 99), lambda: records.read_prefix(0, group=99)):
        with pytest.raises(RecordError) as raised:
            ask()
        assert "twice" not in str(raised.value)
    assert storage.num_reads == 0


def test_so_has_a_header_that_is_asked_for_alone() -> None:
    storage = DamagingStorage(is_remote=True, cut=True)
    records = RecordSet(storage, "s")
    ids = records.read_prefix(0, 1).ids
    storage.num_bad, storage.num_reads = 1, 0
    assert SingleImages(records).header(0).ids == ids and storage.num_reads == 2
