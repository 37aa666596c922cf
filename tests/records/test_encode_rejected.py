"""Images that cannot be stored are left out by name, or refused."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from records_encoding import GOOD, MESSY, encode, write_images
from records_storage import FolderStorage

from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images import decode as jpeg_codec
from pcr_exp.records import fingerprint as fingerprint_module
from pcr_exp.records.reader import RecordSet


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    encode(write_images(tmp_path / "in", MESSY), tmp_path / "out", on_error="skip")
    return tmp_path / "out"


def test_bad_images_are_left_out_by_name(messy: Path) -> None:
    with (messy / "rejected.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["zero.jpg", "png.jpg", "c1.jpg", "c2.jpg", "c3.jpg", "c4.jpg"]
    reasons = [row["reason"] for row in rows]
    assert reasons[:2] == ["zero-byte file", "not a JPEG: PNG content"]
    assert reasons[2].startswith("truncated")


def test_both_encodings_hold_the_same_samples(messy: Path) -> None:
    for encoding in ("pcr", "baseline"):
        record_set = RecordSet(FolderStorage(messy), encoding)
        assert [record.file for record in record_set.index.records] == [
            "record-000000.pcr",
            "record-000002.pcr",
        ]
        prefixes = [record_set.read_prefix(k, 1) for k in range(2)]
        assert [prefix.ids for prefix in prefixes] == [["a.jpg", "b.jpg"], ["d.jpg", "e.jpg"]]
        assert [prefix.labels["size"].tolist() for prefix in prefixes] == [[0, 2], [2, 0]]
    assert RecordSet(FolderStorage(messy), "baseline").read_prefix(1, 1).encoded(0) == MESSY["d"]


def test_a_skipped_encode_is_reported(messy: Path, tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", MESSY)
    shutil.rmtree(messy)
    report = encode(samples, messy, on_error="skip")
    assert (report.num_images, report.num_rejected, report.num_records) == (4, 6, 2)
    assert report.num_turned == 1


@pytest.mark.parametrize("num_workers", [1, 4])
def test_fail_names_the_first_bad_image_by_order(tmp_path: Path, num_workers: int) -> None:
    samples = write_images(tmp_path / "in", MESSY)
    with pytest.raises(ImageError, match=r"in/zero\.jpg: zero-byte file\..*records\.on_error=skip"):
        encode(samples, tmp_path / "out", num_workers=num_workers)
    assert not list((tmp_path / "out").rglob("index.json"))


def test_a_failed_encode_continues_with_skip_and_never_back(tmp_path: Path) -> None:
    images = dict(list(GOOD.items())[:4]) | {"zero": b""} | dict(list(GOOD.items())[4:])
    samples = write_images(tmp_path / "in", images)
    with pytest.raises(ImageError):
        encode(samples, tmp_path / "out")
    assert (tmp_path / "out/pcr/record-000000.pcr").exists()

    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(samples, tmp_path / "out", on_error="skip", progress=stop)
    with pytest.raises(ImageError, match=r"zero\.jpg: zero-byte file"):
        encode(samples, tmp_path / "out", on_error="fail")
    assert encode(samples, tmp_path / "out", on_error="skip").num_rejected == 1


def test_nothing_left_to_store(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", {"a": b"", "b": b"GIF89a"})
    with pytest.raises(RecordError, match=r"no image of photos/train could be stored; .*rejected\.csv"):
        encode(samples, tmp_path / "out", on_error="skip")
    assert b"a.jpg,zero-byte file" in (tmp_path / "out/rejected.csv").read_bytes()
    assert not list((tmp_path / "out").rglob("index.json"))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    samples[1].path.unlink()
    samples[2].path.unlink()
    samples[2].path.mkdir()
    encode(samples, tmp_path / "out", on_error="skip")
    rejected = (tmp_path / "out/rejected.csv").read_text()
    assert f"{samples[1].id},cannot be read: No such file or directory\n" in rejected
    assert f"{samples[2].id},cannot be read: Is a directory\n" in rejected


@pytest.mark.parametrize(("size", "before"), [(1, "1 bytes"), (None, "not readable")])
def test_a_file_that_changes_meanwhile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None, before: str
) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    monkeypatch.setattr(fingerprint_module, "file_size", lambda _: size)
    changed = rf"changed while it was being encoded: {before} before, \d+ bytes now"
    with pytest.raises(ImageError, match=changed):
        encode(samples, tmp_path / "out")


def test_pieces_that_do_not_give_the_file_back_are_never_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jpeg_codec, "split_scans", lambda jpeg: [jpeg[:-3]])
    with pytest.raises(RecordError, match="joining its scan groups does not restore the file"):
        encode(write_images(tmp_path / "in", GOOD), tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.pcr"))
