"""Images reused from existing records give the bytes of a fresh encode, without transcoding."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from records_encoding import GOOD, encode, read_tree, write_images
from records_pictures import BAD, CASES

from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import RecordError, StorageError
from pcr_exp.images.decode import ProgressiveJpeg
from pcr_exp.records.index import dump_index, parse_index
from pcr_exp.records.reuse import StoredImages


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    return write_images(tmp_path / "in", GOOD)


def test_the_bytes_are_those_of_a_fresh_encode(
    samples: list[Sample], tmp_path: Path, transcoded: list[bytes]
) -> None:
    """The images move to other records, another order and another split."""
    encode([*samples[3:], *samples[:3]], tmp_path / "fresh", images_per_record=3, split="val")
    encode(samples[:4], tmp_path / "old/train")
    encode(samples[4:], tmp_path / "old/val", split="val")
    before = read_tree(tmp_path / "old")
    transcoded.clear()
    report = encode(
        [*samples[3:], *samples[:3]],
        tmp_path / "new",
        images_per_record=3,
        split="val",
        reuse=StoredImages(tmp_path / "old"),
    )
    assert read_tree(tmp_path / "new") == read_tree(tmp_path / "fresh")
    assert read_tree(tmp_path / "old") == before
    assert (report.num_reused, transcoded) == (10, [])


def test_only_what_is_the_same_is_taken_over(
    samples: list[Sample], tmp_path: Path, transcoded: list[bytes]
) -> None:
    encode(samples, tmp_path / "old/train")
    replaced = bytearray(GOOD["444"])
    replaced[-100] ^= 1  # same size
    samples[0].path.write_bytes(replaced)
    shutil.copy(samples[2].path, tmp_path / "in/renamed.jpg")
    added = [
        Sample("renamed.jpg", tmp_path / "in/renamed.jpg", samples[2].labels),
        *write_images(tmp_path / "more", {"added": CASES["odd_size"]}),
        *write_images(tmp_path / "bad", {"zero": BAD["zero-byte"][0]}),
    ]
    transcoded.clear()
    report = encode(
        [*samples, *added], tmp_path / "new", on_error="skip", reuse=StoredImages(tmp_path / "old")
    )
    assert report.num_reused == 9
    # Threads transcode in any order.
    assert sorted(transcoded) == sorted([bytes(replaced), GOOD["420"], CASES["odd_size"]])
    encode([*samples, *added], tmp_path / "fresh", on_error="skip")
    assert read_tree(tmp_path / "new") == read_tree(tmp_path / "fresh")


def test_it_continues_where_it_was_stopped(samples: list[Sample], tmp_path: Path) -> None:
    encode(samples, tmp_path / "old/train")
    encode(samples, tmp_path / "fresh")

    def stop(done: int, total: int) -> None:  # noqa: ARG001
        if done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(samples, tmp_path / "new", reuse=StoredImages(tmp_path / "old"), progress=stop)
    first = (tmp_path / "new/pcr/record-000000.pcr").stat().st_ino
    assert encode(samples, tmp_path / "new", reuse=StoredImages(tmp_path / "old")).num_reused == 2
    assert (tmp_path / "new/pcr/record-000000.pcr").stat().st_ino == first
    assert read_tree(tmp_path / "new") == read_tree(tmp_path / "fresh")


def test_limits_hold_for_what_is_taken_over(samples: list[Sample], tmp_path: Path) -> None:
    encode(samples, tmp_path / "old/train")
    report = encode(
        [*samples, *write_images(tmp_path / "more", {"one_pixel": CASES["one_pixel"]})],
        tmp_path / "new",
        on_error="skip",
        max_pixels=1000,
        reuse=StoredImages(tmp_path / "old"),
    )
    assert (report.num_images, report.num_rejected) == (1, 10)


def test_a_folder_without_records(samples: list[Sample], tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"reuse_from=.*: no records to reuse .* Wanted a local folder"):
        StoredImages(tmp_path)
    encode(samples, tmp_path / "old/train")
    shutil.rmtree(tmp_path / "old/train/baseline")
    with pytest.raises(RecordError, match="no records to reuse images from"):
        StoredImages(tmp_path / "old")


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def test_damage_is_not_taken_over(samples: list[Sample], tmp_path: Path) -> None:
    encode(samples, tmp_path / "old/train")
    damaged(tmp_path / "old/train/pcr/record-000001.pcr")
    with pytest.raises(
        RecordError, match=r"group 10 of record .*train/pcr/record-000001\.pcr is cut short or damaged"
    ):
        encode(samples, tmp_path / "new", reuse=StoredImages(tmp_path / "old"))


def test_pieces_that_are_no_scans_are_not_taken_over(
    samples: list[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def glued(codec: ProgressiveJpeg, encoded: bytes) -> list[bytes]:
        groups = split(codec, encoded)
        return [groups[0] + groups[1], b"", *groups[2:]]

    split = ProgressiveJpeg.split
    with monkeypatch.context() as patched:
        patched.setattr(ProgressiveJpeg, "split", glued)
        encode(samples, tmp_path / "old/train")
    with pytest.raises(RecordError, match=r"444\.jpg in .*old: its pieces do not match its scans"):
        encode(samples, tmp_path / "new", reuse=StoredImages(tmp_path / "old"))


def test_records_of_another_script(samples: list[Sample], tmp_path: Path) -> None:
    encode(samples, tmp_path / "old/train")
    path = tmp_path / "old/train/pcr/index.json"
    path.write_bytes(dump_index(replace(parse_index(path.read_bytes(), "it"), scans="none")))
    with pytest.raises(RecordError, match="by the script 'none', wanted 10 by 'libjpeg-default'"):
        encode(samples, tmp_path / "new", reuse=StoredImages(tmp_path / "old"))


def test_encodings_of_two_encodes(samples: list[Sample], tmp_path: Path) -> None:
    encode(samples, tmp_path / "old/train")
    encode([*reversed(samples)], tmp_path / "other")
    shutil.rmtree(tmp_path / "old/train/pcr")
    shutil.move(tmp_path / "other/pcr", tmp_path / "old/train/pcr")
    with pytest.raises(RecordError, match="record 0 of train holds different images in baseline and in pcr"):
        encode(samples, tmp_path / "new", reuse=StoredImages(tmp_path / "old"))


def test_records_that_go_away(samples: list[Sample], tmp_path: Path) -> None:
    encode(samples, tmp_path / "old/train")
    reuse = StoredImages(tmp_path / "old")
    assert reuse.groups("444.jpg", GOOD["444"]) is not None
    (tmp_path / "old/train/pcr/record-000000.pcr").unlink()
    with pytest.raises(StorageError, match=r"record-000000\.pcr does not exist"):
        encode(samples, tmp_path / "new", reuse=reuse)


@pytest.mark.parametrize("again", ["not yet", "made"])
def test_images_are_transcoded_once_another_process_makes_the_records_anew(
    samples: list[Sample], tmp_path: Path, caplog: pytest.LogCaptureFixture, again: str
) -> None:
    folder = tmp_path / "old/train"
    encode(samples, folder)
    reuse = StoredImages(tmp_path / "old")
    assert reuse.groups("444.jpg", GOOD["444"]) is not None
    shutil.rmtree(folder)
    if again == "made":
        encode([*reversed(samples)], folder)
    with caplog.at_level("WARNING"):
        encode(samples, tmp_path / "new", reuse=reuse)
    assert "is being made anew, so no more images are reused from it" in caplog.text
    encode(samples, tmp_path / "fresh")
    assert read_tree(tmp_path / "new") == read_tree(tmp_path / "fresh")
