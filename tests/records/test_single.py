"""A single image of a record takes small reads, and is verified by itself."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from records_encoding import GOOD, encode, write_images
from records_storage import FolderStorage, MemoryStorage

from pcr_exp.errors import RecordError
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages, find_image


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("single")
    encode(write_images(folder / "in", GOOD), folder / "out")
    return {str(path.relative_to(folder)): path.read_bytes() for path in (folder / "out").glob("*/*")}


@pytest.mark.parametrize(("encoding", "num_groups"), [("pcr", 10), ("baseline", 1)])
def test_it_is_the_image_of_the_prefix(files: dict[str, bytes], encoding: str, num_groups: int) -> None:
    records = RecordSet(MemoryStorage(files), f"out/{encoding}")
    images = SingleImages(records)
    for record in (2, 0, 1):
        for group in range(1, num_groups + 1):
            prefix = records.read_prefix(record, group)
            for i in reversed(range(len(prefix))):
                assert images.read(record, i, group) == prefix.encoded(i)
                assert images.header(record).ids[i] == prefix.ids[i]
                labels = {name: values[i] for name, values in images.labels(record).items()}
                assert labels == {name: values[i] for name, values in prefix.labels.items()}


def test_reads_are_small_and_one_for_each_group(tmp_path: Path) -> None:
    encode(write_images(tmp_path / "in", GOOD), tmp_path / "out", images_per_record=10)
    storage = FolderStorage(tmp_path / "out")
    records = RecordSet(storage, "pcr")
    (entry,) = records.index.records
    images = SingleImages(records)
    storage.reads.clear()
    image = images.read(0, 3, 5)
    starts = [0, *entry.group_ends[:4]]
    tables = [("pcr/record-000000.pcr", start, 12 * 10 + 8) for start in starts[1:]]
    assert storage.reads[0] == ("pcr/record-000000.pcr", 0, entry.header_bytes + 12 * 10 + 8)
    assert sorted(read for read in storage.reads if read in tables) == tables
    assert len(storage.reads) == 10
    assert sum(length for *_, length in storage.reads) == (
        entry.header_bytes + 5 * (12 * 10 + 8) + len(image) - 2
    )
    storage.reads.clear()
    image = images.read(0, 7, 5)
    assert len(storage.reads) == 5  # the tables that locate the pieces are cached
    assert sum(length for *_, length in storage.reads) == len(image) - 2


@given(st.data())
def test_damage_is_noticed_where_it_matters(files: dict[str, bytes], data: st.DataObject) -> None:
    """After any changed byte, each image is correct or an error."""
    records = RecordSet(MemoryStorage(files), "out/pcr")
    wanted = records.read_prefix(0, 10)
    path = "out/pcr/record-000000.pcr"
    changed = bytearray(files[path])
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    images = SingleImages(RecordSet(MemoryStorage(files | {path: bytes(changed)}), "out/pcr"))
    intact = SingleImages(records)
    pieces = [intact.table(0, group).bounds for group in range(1, 11)]
    num_damaged = 0
    for i in range(len(wanted)):
        try:
            assert images.read(0, i, 10) == wanted.encoded(i)
        except RecordError as error:
            assert path in str(error)
            num_damaged += 1
    if any(bounds[0] <= position < bounds[-1] for bounds in pieces):
        assert num_damaged == 1
    elif position < records.index.records[0].header_bytes:
        assert num_damaged == 4


def test_a_damaged_piece_is_named_and_others_are_had(files: dict[str, bytes]) -> None:
    path = "out/pcr/record-000000.pcr"
    records = RecordSet(MemoryStorage(files), "out/pcr")
    start = SingleImages(records).table(0, 2).bounds[1]
    changed = bytearray(files[path])
    changed[start] ^= 1
    damaged = RecordSet(MemoryStorage(files | {path: bytes(changed)}), "out/pcr")
    images = SingleImages(damaged)
    with pytest.raises(
        RecordError, match=r"image 1 in group 2 of record out/pcr/record-000000\.pcr is cut short"
    ):
        images.read(0, 1, 2)
    assert images.read(0, 1, 1) == records.read_prefix(0, 1).encoded(1)
    for i in (0, 2, 3):
        assert images.read(0, i, 10) == records.read_prefix(0, 10).encoded(i)
    with pytest.raises(
        RecordError, match=r"group 2 of .* does not match \(first in image 1, counted from 0 to 3\)"
    ):
        damaged.read_prefix(0, 2)


def test_a_record_cut_short_is_noticed(files: dict[str, bytes]) -> None:
    path = "out/pcr/record-000000.pcr"
    entry = RecordSet(MemoryStorage(files), "out/pcr").index.records[0]
    for end, message in ((entry.group_ends[1] + 10, "group 3 of .* is cut short"), (30, "cut short")):
        images = SingleImages(RecordSet(MemoryStorage(files | {path: files[path][:end]}), "out/pcr"))
        with pytest.raises(RecordError, match=message):
            images.read(0, 0, 3)


def test_a_table_that_does_not_fit_its_group(files: dict[str, bytes]) -> None:
    path = "out/pcr/record-000000.pcr"
    entry = RecordSet(MemoryStorage(files), "out/pcr").index.records[0]
    changed = bytearray(files[path])
    changed[entry.group_ends[0] : entry.group_ends[0] + 4] = struct.pack("<I", 2**32 - 1)
    images = SingleImages(RecordSet(MemoryStorage(files | {path: bytes(changed)}), "out/pcr"))
    with pytest.raises(
        RecordError, match=r"group 2 of record .* is damaged: its pieces end at byte \d+, wanted"
    ):
        images.read(0, 0, 2)


def test_an_image_that_is_not_there(files: dict[str, bytes]) -> None:
    images = SingleImages(RecordSet(MemoryStorage(files), "out/pcr"))
    for i in (-1, 4):
        with pytest.raises(IndexError, match=f"sample {i} is out of range for a record of 4"):
            images.read(0, i, 1)
    with pytest.raises(RecordError, match="scan group 11 was asked for"):
        images.read(0, 0, 11)


def test_the_cost_is_eight_bytes_for_each_image_and_group(files: dict[str, bytes]) -> None:
    entry = RecordSet(MemoryStorage(files), "out/pcr").index.records[0]
    data = files["out/pcr/record-000000.pcr"]
    start = entry.header_bytes
    for end in entry.group_ends:
        lengths = np.frombuffer(data, "<u4", 4, start)
        assert end - start == 4 * (4 + 8) + 8 + lengths.sum()
        (stated,) = struct.unpack_from("<Q", data, start + 48)
        assert stated == xxhash.xxh3_64_intdigest(data[start : start + 48] + data[start + 56 : end])
        start = end


@pytest.mark.parametrize("encoding", ["pcr", "baseline"])
def test_an_image_is_found_by_headers_alone(files: dict[str, bytes], encoding: str) -> None:
    storage = MemoryStorage({name.removeprefix("out/"): data for name, data in files.items()})
    records = RecordSet(storage, encoding)
    wanted = SingleImages(records).header(1).ids[0]
    records.read_prefix = None  # type: ignore[assignment,method-assign]
    assert find_image([(records, range(len(records.index.records)))], wanted) == (records, 1, 0)
