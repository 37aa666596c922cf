"""Records of every version that was released can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from records_encoding import CLASSES, GOOD, encode, write_images
from records_storage import FolderStorage
from records_version_1 import write_version_1

from pcr_exp.errors import RecordError
from pcr_exp.images.jpeg import group_pieces, split_scans
from pcr_exp.images.transcode import to_progressive
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages

PIECES = {name: group_pieces(split_scans(to_progressive(jpeg))) for name, jpeg in GOOD.items()}


def write_good(root: Path, split: str = "train", per_record: int = 4, *, glued: bool = False) -> None:
    """All of GOOD, in both encodings, as a split of version 1; with `glued`, cut into scans wrongly."""
    for encoding, num_groups in (("pcr", 10), ("baseline", 1)):
        pieces = {name: PIECES[name] if encoding == "pcr" else [jpeg] for name, jpeg in GOOD.items()}
        if glued and encoding == "pcr":
            pieces = {name: [groups[0] + groups[1], b"", *groups[2:]] for name, groups in pieces.items()}
        names = list(GOOD)
        records = [
            {f"{name}.jpg": pieces[name] for name in names[start : start + per_record]}
            for start in range(0, len(names), per_record)
        ]
        labels = {
            label: {f"{name}.jpg": i % len(values) for i, name in enumerate(names)}
            for label, values in CLASSES.items()
        }
        what = {"dataset": "photos", "split": split, "encoding": encoding, "fingerprint": "f00d"}
        write_version_1(root / split / encoding, records, labels, CLASSES, num_groups=num_groups, **what)


def test_version_1_is_read_as_it_is(tmp_path: Path) -> None:
    write_good(tmp_path)
    for encoding, scans in (("pcr", "libjpeg-default"), ("baseline", "none")):
        records = RecordSet(FolderStorage(tmp_path), f"train/{encoding}")
        assert (records.index.version, records.index.images, records.index.scans) == (1, "", scans)
        for group in range(1, records.index.num_groups + 1):
            found = {}
            for record in range(3):
                prefix = records.read_prefix(record, group)
                found |= {prefix.ids[i]: prefix.encoded(i) for i in range(len(prefix))}
                assert prefix.labels["size"].tolist() == [(4 * record + i) % 3 for i in range(len(prefix))]
            for name, jpeg in GOOD.items():
                wanted = jpeg if encoding == "baseline" else b"".join(PIECES[name][:group]) + b"\xff\xd9"
                assert found[f"{name}.jpg"] == wanted
    prefix = RecordSet(FolderStorage(tmp_path), "train/pcr").read_prefix(0, 2)
    more = RecordSet(FolderStorage(tmp_path), "train/pcr").read_extension(0, 2, 7)
    assert prefix.extended(more).encoded(1) == b"".join(PIECES[list(GOOD)[1]][:7]) + b"\xff\xd9"


def test_version_1_is_verified(tmp_path: Path) -> None:
    write_good(tmp_path)
    file = tmp_path / "train/pcr/record-000001.pcr"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(RecordError, match=r"group 10 of record train/pcr/record-000001\.pcr is damaged"):
        RecordSet(FolderStorage(tmp_path), "train/pcr").read_prefix(1, 10)


def test_single_images_of_version_1_cannot_be_verified(tmp_path: Path) -> None:
    write_good(tmp_path)
    records = RecordSet(FolderStorage(tmp_path), "train/pcr")
    with pytest.raises(RecordError, match=r"train/pcr are of format version 1, .* with records\.reuse_from"):
        SingleImages(records)


def test_records_and_index_of_two_versions_are_not_mixed(tmp_path: Path) -> None:
    encode(write_images(tmp_path / "in", GOOD), tmp_path / "new")
    write_good(tmp_path)
    old = (tmp_path / "train/pcr/record-000000.pcr").read_bytes()
    (tmp_path / "new/pcr/record-000000.pcr").write_bytes(old + bytes(1000))
    with pytest.raises(
        RecordError, match="does not belong to its index: format version is 1, the index says 2"
    ):
        RecordSet(FolderStorage(tmp_path), "new/pcr").read_prefix(0, 10)


def test_an_encode_into_the_folder_of_version_1_says_what_to_do(tmp_path: Path) -> None:
    write_good(tmp_path)
    with pytest.raises(RecordError, match=r"of format version 1, which can be read; .*records\.reuse_from=/"):
        encode(write_images(tmp_path / "in", GOOD), tmp_path / "train")


def test_version_1_is_what_the_program_of_its_time_wrote(tmp_path: Path) -> None:
    """Where this repository's history is at hand."""
    code = Path(__file__).parents[2]
    at = "78bf97e"
    archive = subprocess.run(["git", "-C", code, "archive", at, "pcr_exp"], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"commit {at} is not here")
    (tmp_path / "old").mkdir()
    subprocess.run(["tar", "-x", "-C", tmp_path / "old"], input=archive.stdout, check=True)
    write_good(tmp_path)
    script = """
import sys
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
for encoding in ("pcr", "baseline"):
    records = RecordSet(LocalStorage(sys.argv[1]), f"train/{encoding}")
    assert records.index.num_samples == 10
    for record in range(3):
        records.read_prefix(record, records.index.num_groups)
"""
    environment = {"PYTHONPATH": str(tmp_path / "old"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
