"""`python -m pcr_exp verify` reports files that are missing or superfluous in a folder of records."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from storage_http_server import range_server

from pcr_exp.cli import main
from pcr_exp.records import index_table as stored_index
from pcr_exp.records.index import INDEX_FILE, TABLE_FILE, parse_index
from pcr_exp.records.index_table import write_index
from pcr_exp.storage import objects
from pcr_exp.storage.open import PerProcessStorage

Output = pytest.CaptureFixture[str]


@pytest.fixture
def copy(split: Path, tmp_path: Path) -> Path:
    """Copy of both encodings of a split, seven records each."""
    for encoding in ("pcr", "baseline"):
        shutil.copytree(split / encoding, tmp_path / "train" / encoding)
    return tmp_path / "train"


def verified(root: Path | str, capsys: Output) -> list[str]:
    """Return the lines that `verify` prints for an address with faults."""
    assert main(["verify", str(root)]) == 1
    return capsys.readouterr().out.splitlines()


def test_an_index_that_is_missing(copy: Path, capsys: Output) -> None:
    (copy / "pcr" / INDEX_FILE).unlink()
    for root, place in ((copy, "pcr"), (copy.parent, "train/pcr")):
        missing, whole = verified(root, capsys)
        assert missing.startswith(
            f"missing: {place}/index.json: without it, nothing can open the 7 records in this folder"
        )
        assert "7 of 14 records are whole" in whole and whole.endswith("baseline")
    missing, whole = verified(copy / "pcr", capsys)
    assert (
        missing.startswith("missing: index.json: without it, nothing can open the 7 records")
        and "0 of 7 records are whole" in whole
    )


def test_an_index_that_is_missing_where_nothing_can_be_listed(copy: Path, capsys: Output) -> None:
    (copy / "pcr" / INDEX_FILE).unlink()
    with range_server(copy) as server:
        missing, whole = verified(server.url, capsys)
    assert (
        missing.startswith("missing: pcr/index.json: without it, nothing can open the one record")
        and "7 of 8 records" in whole
    )


def test_a_damaged_index_does_not_hide_the_other_records(copy: Path, capsys: Output) -> None:
    path = copy / "pcr" / INDEX_FILE
    path.write_bytes(path.read_bytes().replace(b"parity", b"parify"))
    damaged, whole = verified(copy, capsys)
    assert damaged.startswith("damaged: pcr/index.json: pcr/index.json is damaged or was edited")
    assert "7 of 14 records are whole" in whole


def test_records_that_are_not_there_and_records_that_are_not_listed(copy: Path, capsys: Output) -> None:
    (copy / "pcr/record-000002.pcr").rename(copy / "pcr/record-000009.pcr")
    missing, more, whole = verified(copy, capsys)
    assert missing.startswith(
        "missing: pcr/record-000002.pcr: index.json lists it, but it does not exist. Copy"
    )
    assert more.startswith(
        "not listed: pcr/record-000009.pcr: index.json does not list it, so nothing reads it"
    )
    assert "13 of 14 records are whole" in whole


def test_a_table_of_another_index_and_a_damaged_one(
    copy: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_index, "LARGE_BYTES", 1)
    folder = copy / "pcr"
    before = (folder / INDEX_FILE).read_bytes()
    index = parse_index(before, "index")
    write_index(folder, replace(index, dataset="other"))
    table = (folder / TABLE_FILE).read_bytes()
    write_index(folder, index)
    assert main(["verify", str(copy)]) == 0
    capsys.readouterr()
    fitting = (folder / TABLE_FILE).read_bytes()
    for data, reason in (
        (table, "was made from a different index.json"),
        (fitting[:-1] + b"x", "is damaged: its che"),
    ):
        (folder / TABLE_FILE).write_bytes(data)
        unused, whole = verified(copy, capsys)
        assert unused.startswith(f"not used: pcr/index.table: it {reason}") and "14 of 14 records" in whole
        assert (folder / INDEX_FILE).read_bytes() == before


def test_files_of_other_kinds_are_no_fault(copy: Path, capsys: Output) -> None:
    (copy / "pcr/readme.txt").write_text("mine")
    (copy / "pcr/record-000000.pcr.tmp").write_text("left over")
    assert main(["verify", str(copy)]) == 0
    assert "14 of 14 records are whole" in capsys.readouterr().out


def test_where_no_record_is(tmp_path: Path, capsys: Output) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    assert "there are no records. Wanted a record (.pcr)" in capsys.readouterr().err


def test_names_in_a_bucket(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.store import LocalStore

    storage = PerProcessStorage("s3://bucket/train")
    opened = storage.inner.inner
    assert isinstance(opened, objects.ObjectStorage)
    monkeypatch.setattr(opened, "_store", LocalStore(copy))
    assert storage.names("pcr") == {path.name for path in (copy / "pcr").iterdir()}
    assert storage.names("") == set() == storage.names("tune/pcr")
