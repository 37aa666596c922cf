"""Every image is encoded and read back faithfully, or left out by name."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records_encoding import CLASSES, GOOD, MESSY, encode, read_tree, write_images
from records_pictures import CASES, PLAIN, pixels
from records_storage import FolderStorage

from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import RecordError, StorageError
from pcr_exp.images import decode as jpeg_codec
from pcr_exp.images.transcode import to_progressive
from pcr_exp.records.format import unpack_header
from pcr_exp.records.markers import read_rejected
from pcr_exp.records.reader import RecordSet


def test_what_is_written(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    report = encode(
        write_images(tmp_path / "in", CASES),
        tmp_path / "out",
        progress=lambda *numbers: told.append(numbers),
    )
    files = read_tree(tmp_path / "out")
    records = [f"{name}/record-{k:06d}.pcr" for name in ("baseline", "pcr") for k in range(5)]
    assert sorted(files) == sorted([*records, "baseline/index.json", "pcr/index.json", "rejected.csv"])
    assert files["rejected.csv"] == b"id,reason\n"
    assert (report.num_images, report.num_rejected, report.num_records) == (18, 0, 5)
    for name, num_bytes in report.num_bytes.items():
        assert num_bytes == sum(len(files[path]) for path in records if path.startswith(name))
    assert report.num_turned == 1
    assert report.encode_s > 0
    assert told[-1] == (18, 18)
    assert [done for done, _ in told[:18]] == list(range(1, 19))


def test_records_hold_the_samples_in_order_with_their_labels(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", CASES)
    encode(samples, tmp_path / "out")
    for encoding in ("pcr", "baseline"):
        record_set = RecordSet(FolderStorage(tmp_path / "out"), encoding)
        assert record_set.index.classes == CLASSES
        assert (record_set.index.dataset, record_set.index.split) == ("photos", "train")
        assert [record.num_samples for record in record_set.index.records] == [4, 4, 4, 4, 2]
        prefixes = [record_set.read_prefix(k, 1) for k in range(5)]
        assert [id_ for prefix in prefixes for id_ in prefix.ids] == [sample.id for sample in samples]
        for label in CLASSES:
            values = np.concatenate([prefix.labels[label] for prefix in prefixes])
            assert values.tolist() == [sample.labels[label] for sample in samples]


def test_the_key_of_the_images_is_of_what_they_are_not_of_their_place(tmp_path: Path) -> None:
    def key(samples: list[Sample], folder: str, **changes: Any) -> str:
        encode(samples, tmp_path / folder, **changes)
        (images,) = {RecordSet(FolderStorage(tmp_path / folder), name).index.images for name in SCANS}
        return images

    samples = write_images(tmp_path / "in", GOOD)
    moved = write_images(tmp_path / "moved", GOOD)
    wanted = key(samples, "a")
    assert re.fullmatch("[0-9a-f]{16}", wanted)
    assert key([*reversed(moved)], "b", images_per_record=3, split="val") == wanted
    assert key(samples[:-1], "c") != wanted
    relabelled = replace(samples[0], labels={"kind": 1, "size": 0})
    assert key([relabelled, *samples[1:]], "d") != wanted
    samples[3].path.write_bytes(CASES["odd_size"])
    assert key(samples, "e") != wanted


def test_header_and_index_name_the_scan_script(tmp_path: Path) -> None:
    encode(write_images(tmp_path / "in", GOOD), tmp_path / "out")
    for encoding, scans in SCANS.items():
        assert RecordSet(FolderStorage(tmp_path / "out"), encoding).index.scans == scans
        data = (tmp_path / "out" / encoding / "record-000000.pcr").read_bytes()
        assert unpack_header(data, "it")[0].scans == scans


def test_images_come_back(tmp_path: Path) -> None:
    encode(write_images(tmp_path / "in", CASES), tmp_path / "out", images_per_record=len(CASES))
    pcr = RecordSet(FolderStorage(tmp_path / "out"), "pcr").read_prefix(0, 10)
    baseline = RecordSet(FolderStorage(tmp_path / "out"), "baseline").read_prefix(0, 1)
    for i, jpeg in enumerate(CASES.values()):
        assert baseline.encoded(i) == jpeg
        if CASES["grey"] != jpeg:
            assert pcr.encoded(i) == to_progressive(jpeg)
        np.testing.assert_array_equal(pixels(pcr.encoded(i)), pixels(jpeg))


def test_a_prefix_is_exactly_one_read_of_exactly_its_bytes(tmp_path: Path) -> None:
    encode(write_images(tmp_path / "in", GOOD), tmp_path / "out")
    storage = FolderStorage(tmp_path)
    record_set = RecordSet(storage, "out/pcr")
    assert storage.reads == [("out/pcr/index.json", 0, (tmp_path / "out/pcr/index.json").stat().st_size)]
    for record in range(3):
        for group in range(1, 11):
            storage.reads.clear()
            prefix = record_set.read_prefix(record, group)
            wanted = record_set.index.prefix_bytes(record, group)
            assert storage.reads == [(f"out/pcr/record-{record:06d}.pcr", 0, wanted)]
            assert prefix.num_bytes == wanted
    sizes = [path.stat().st_size for path in sorted((tmp_path / "out/pcr").glob("*.pcr"))]
    assert [record_set.index.prefix_bytes(k, 10) for k in range(3)] == sizes


def test_threads_read_the_same(tmp_path: Path) -> None:
    encode(write_images(tmp_path / "in", GOOD), tmp_path / "out")
    record_set = RecordSet(FolderStorage(tmp_path / "out"), "pcr")
    wanted = [record_set.read_prefix(k, 10).encoded(0) for k in range(3)]
    found: dict[int, list[bytes]] = {}

    def read(thread: int) -> None:
        found[thread] = [record_set.read_prefix(k, 10).encoded(0) for k in range(3)]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), wanted)


def test_input_files_are_left_as_they_are(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", MESSY)
    before = {path: (path.read_bytes(), path.stat()) for path in (tmp_path / "in").iterdir()}
    encode(samples, tmp_path / "out", on_error="skip")
    for path, (content, stat) in before.items():
        assert path.read_bytes() == content
        assert (path.stat().st_mtime_ns, path.stat().st_mode) == (stat.st_mtime_ns, stat.st_mode)
    assert len(before) == len(list((tmp_path / "in").iterdir()))


@pytest.mark.parametrize("num_workers", [1, 3])
def test_bytes_do_not_depend_on_the_workers(tmp_path: Path, num_workers: int) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    encode(samples, tmp_path / "one", num_workers=2)
    encode(samples, tmp_path / "other", num_workers=num_workers)
    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "other")


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    name = b"caf\xe9".decode(errors="surrogateescape")
    encode(write_images(tmp_path / "in", {name: PLAIN, "bad" + name: b""}), tmp_path / "out", on_error="skip")
    assert RecordSet(FolderStorage(tmp_path / "out"), "pcr").read_prefix(0, 1).ids == [f"{name}.jpg"]
    assert b"badcaf\xe9.jpg,zero-byte file\n" in (tmp_path / "out/rejected.csv").read_bytes()


def test_a_file_name_with_a_carriage_return(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", {"a\rb": PLAIN, "bad\r": b""})
    encode(samples, tmp_path / "out", on_error="skip")
    assert read_rejected(tmp_path / "out") == [["bad\r.jpg", "zero-byte file"]]


def test_done_already_is_done_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = write_images(tmp_path / "in", MESSY)
    first = encode(samples, tmp_path / "out", on_error="skip")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    monkeypatch.setattr(jpeg_codec, "to_progressive", None)
    told: list[tuple[int, int]] = []
    again = encode(samples, tmp_path / "out", progress=lambda *numbers: told.append(numbers))
    assert told == [(10, 10)]
    assert (again.num_images, again.num_rejected, again.num_bytes) == (4, 6, first.num_bytes)
    assert again.num_turned is None
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_records_of_other_files_are_not_overwritten(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    encode(samples, tmp_path / "out")
    before = read_tree(tmp_path / "out")
    changes = [
        (samples[:-1], {}),
        ([samples[1], samples[0], *samples[2:]], {}),
        (samples, {"images_per_record": 5}),
        (samples, {"split": "val"}),
    ]
    samples[3].path.write_bytes(samples[3].path.read_bytes() + b"!")
    changes.append((list(samples), {}))
    for others, settings in changes:
        with pytest.raises(RecordError, match=r"made from other files .*on_change=reencode.*dataset\.name"):
            encode(others, tmp_path / "out", **settings)
    assert read_tree(tmp_path / "out") == before


def test_a_damaged_index_is_not_taken_for_done(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    encode(samples, tmp_path / "out")
    path = tmp_path / "out/pcr/index.json"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RecordError, match=re.escape(f"{path} is damaged")):
        encode(samples, tmp_path / "out")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    samples = write_images(tmp_path / "in", GOOD)
    with pytest.raises(StorageError, match=r"file/out cannot be written: Not a directory\. Check the disk"):
        encode(samples, tmp_path / "file" / "out")
