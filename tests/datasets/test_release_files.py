"""Reading the index and records of the release, and the files that are refused."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from release_writer import record_parts, varint, write_index, write_release

from pcr_exp.datasets.release_files import MAX_LABEL, ReleaseImage, read_index, read_record
from pcr_exp.errors import DatasetError

IMAGES = [[b"one", b"", b"x" * 300], [b"two", b"more", b""]]
LABELS = [300, 1]


class Runs:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def record(tmp_path: Path) -> tuple[Path, list[int]]:
    write_release(tmp_path, [(LABELS, IMAGES)])
    return tmp_path / "PCR_0.pcr", read_index(tmp_path / "PCR.db")["PCR_0.pcr"]


@pytest.mark.parametrize("protocol", range(6))
def test_lengths_are_read_as_any_protocol_writes_them(tmp_path: Path, protocol: int) -> None:
    lengths = [0, 1, 255, 256, 2**16, 2**31 - 1, 2**31, 2**40]
    values = {f"PCR_{i}.pcr": pickle.dumps(lengths, protocol) for i in (10, 2)}
    assert list(read_index(write_index(tmp_path, values)).items()) == [
        ("PCR_2.pcr", lengths),
        ("PCR_10.pcr", lengths),
    ]


def test_nothing_is_written_beside_the_index(tmp_path: Path) -> None:
    path = write_index(tmp_path / "with space?&%41", {"a.pcr": [1, 2]})
    before = path.read_bytes()
    assert read_index(path) == {"a.pcr": [1, 2]}
    assert [file.name for file in path.parent.iterdir()] == ["PCR.db"] and path.read_bytes() == before


def test_a_value_that_would_run_code_does_not(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for protocol in range(6):
        hostile = pickle.dumps([1, Runs(ran)], protocol)
        path = write_index(tmp_path / str(protocol), {"PCR_0.pcr": hostile, "m_classes": hostile})
        with pytest.raises(DatasetError, match=r"PCR_0\.pcr: its pickled value has the opcode \w+, which"):
            read_index(path)
    assert not ran.exists()
    pickle.loads(hostile)
    assert ran.exists()  # pickle would have run the code


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, "2"], "has the opcode SHORT_BINUNICODE"),
        ([1, [2]], r"wanted one list, .* found \[1, 2\] in 2"),
        ((1, 2), "has the opcode TUPLE2"),
        ([1, 2.0], "has the opcode BINFLOAT"),
        ([1, True], "has the opcode NEWTRUE"),
        ([1, -2], "wanted one list, the lengths of the metadata"),
        ([1], "wanted one list, the lengths of the metadata and of 1 to 64 scan groups"),
        ([1] * 66, "wanted one list, the lengths of the metadata and of 1 to 64 scan groups"),
        (b"", "damaged"),
        (b"\x80\x05]K", "damaged"),
        (b"\x80\x05\xff", "damaged"),
        (b"I01\n.", "wanted one list, the lengths"),
    ],
)
def test_other_values_are_refused(tmp_path: Path, value: object, message: str) -> None:
    path = write_index(tmp_path, {"PCR_0.pcr": value})
    with pytest.raises(DatasetError, match=message):
        read_index(path)


@pytest.mark.parametrize("name", ["../other.pcr", "/etc/passwd", "..", ""])
def test_a_record_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match="wanted the name of a record in the same folder"):
        read_index(write_index(tmp_path, {name: [1, 2]}))


def test_no_index(tmp_path: Path) -> None:
    path = tmp_path / "PCR.db"
    path.write_bytes(b"not a database, whatever its name says" * 50)
    with pytest.raises(DatasetError, match="is not the SQLite index of a PCR release: file is not"):
        read_index(path)
    path.unlink()
    with pytest.raises(DatasetError, match="is not the SQLite index"):
        read_index(path)
    with pytest.raises(DatasetError, match=r"PCR\.db lists no record"):
        read_index(write_index(tmp_path, {"m_batch_size": 128}))


def test_a_value_that_is_text(tmp_path: Path) -> None:
    path = write_index(tmp_path, {})
    with closing(sqlite3.connect(path)) as index, index:
        index.execute("INSERT INTO unnamed VALUES ('PCR_0.pcr', 'text')")
    with pytest.raises(DatasetError, match="wanted a pickled list of lengths, found str"):
        read_index(path)


def test_images_are_put_together_again(record: tuple[Path, list[int]]) -> None:
    found = read_record(*record)
    assert found.labels == LABELS
    for position, pieces in enumerate(IMAGES):
        image = ReleaseImage(found, position)
        assert image.read_bytes() == b"".join(pieces) + b"\xff\xd9"
        assert image.num_bytes == len(image.read_bytes())
        assert image.pieces(image.read_bytes()) == pieces


def _damage(parts: list[bytes], part: int, content: bytes) -> list[bytes]:
    return [*parts[:part], content, *parts[part + 1 :]]


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        (0, b"\x08", "metadata: a number at byte 1 does not end"),
        (0, b"\x08" + b"\xff" * 10, "does not end"),
        (0, b"\x0a\x01", "metadata: the field tag 0xa is not one of the release's"),
        (0, b"\x08\x01", "scan group 1: 2 pieces for 1 labels"),
        (0, b"\x08\x01\x08" + varint(MAX_LABEL + 1), f"the label {MAX_LABEL + 1} is more than {MAX_LABEL}"),
        (2, b"\x0a\x01a", "scan group 2: 1 pieces for 2 labels"),
        (2, b"\x0a\x05a", "scan group 2: the piece at byte 2 is longer than the rest of the group"),
        (2, b"\x08\x01", "scan group 2: wanted a piece at byte 0, found tag 0x8"),
        (2, b"\x0a", "scan group 2: a number at byte 1 does not end"),
    ],
)
def test_damaged_records_are_refused(tmp_path: Path, part: int, content: bytes, message: str) -> None:
    parts = _damage(record_parts(LABELS, IMAGES), part, content)
    path = tmp_path / "PCR_0.pcr"
    path.write_bytes(b"".join(parts))
    with pytest.raises(DatasetError, match=message):
        read_record(path, [len(part) for part in parts])


def test_a_record_of_another_length(record: tuple[Path, list[int]]) -> None:
    path, lengths = record
    with path.open("ab") as file:
        file.write(b"more")
    num_bytes = path.stat().st_size
    with pytest.raises(DatasetError, match=f"has {num_bytes} bytes; the index says {num_bytes - 4}"):
        read_record(path, lengths)
