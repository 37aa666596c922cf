"""Text from files is shown with unprintable characters escaped; they never reach the terminal."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcr_exp as pcr
from pcr_exp.cli import main
from pcr_exp.cli import prepare as preparing
from pcr_exp.datasets.seen import some
from pcr_exp.errors import ConfigError, PcrExpError, RecordError, SettingError, printable
from pcr_exp.records.format import RecordHeader, pack_record
from pcr_exp.records.index import RecordEntry, RecordIndex
from pcr_exp.records.index_table import write_index

Output = pytest.CaptureFixture[str]
CLEAR, FORGED = "\x1b[2J\x1b]0;title\x07", "\n5 of 5 records are whole\r\u202e\udcff"
HOSTILE = f"{CLEAR}cat{FORGED}\x00.jpg"
SHOWN = r"\x1b[2J\x1b]0;title\x07cat\n5 of 5 records are whole\r\u202e\udcff\x00.jpg"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Records of two images with hostile text in the names of dataset, split, label, class and image."""
    named = {name: f"{name}{HOSTILE}" for name in ("dataset", "split")}
    header = RecordHeader(
        **named,
        encoding="baseline",
        fingerprint="ab",
        num_groups=1,
        ids=[HOSTILE, "b"],
        labels={HOSTILE: [0, 1]},
        images="cd",
    )
    packed = pack_record(header, [[b"no JPEG"], [b"none"]])
    folder = tmp_path / "baseline"
    folder.mkdir()
    (folder / "record-000000.pcr").write_bytes(b"".join(packed.chunks))
    entry = RecordEntry("record-000000.pcr", 2, packed.group_ends, packed.header_bytes)
    index = RecordIndex(
        **named,
        encoding="baseline",
        fingerprint="ab",
        num_groups=1,
        classes={HOSTILE: [HOSTILE, "y"]},
        records=[entry],
        images="cd",
    )
    write_index(folder, index)
    return folder


def lines(text: str) -> list[str]:
    """Return the lines of an output, all of whose characters must be printable."""
    assert text.replace("\n", "").isprintable()
    return text.splitlines()


def test_inspect_shows_names_of_datasets_labels_classes_and_images(hostile: Path, capsys: Output) -> None:
    assert main(["inspect", str(hostile)]) == 0
    said = lines(capsys.readouterr().out)
    assert f"dataset{SHOWN}/split{SHOWN}, baseline" in said[0]
    assert f"  label {SHOWN}: 2 classes ({SHOWN}, y)" in said
    assert any(line.startswith(f"      0  {SHOWN}  {SHOWN}=0  bytes") for line in said)


def test_verify_shows_the_ids_of_damaged_images(hostile: Path, capsys: Output) -> None:
    record = hostile / "record-000000.pcr"
    data = record.read_bytes()
    record.write_bytes(data[:-11] + b"N" + data[-10:])
    assert main(["verify", str(hostile)]) == 1
    said = lines(capsys.readouterr().out)
    assert f"damaged: record-000000.pcr: image {SHOWN}, group 1" in said
    assert said[-1].startswith("0 of 1 record is whole") and len(said) == 3


def test_extract_shows_the_id_and_writes_no_such_file_name(
    hostile: Path, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for status in (0, 1):  # the second time, the file exists
        assert main(["extract", str(hostile), "0"]) == status
        captured = capsys.readouterr()
        assert SHOWN.removesuffix(".jpg") in lines(captured.out + captured.err)[0]
    (file,) = tmp_path.glob("*.jpg")
    assert file.name.isprintable() and file.read_bytes() == b"no JPEG"


def test_errors_show_them(hostile: Path) -> None:
    with (
        pytest.raises(RecordError) as caught,
        pcr.open(hostile, scan="baseline").loader(2, image_size=32, num_workers=0, shuffle=False) as loader,
    ):
        next(iter(loader))
    assert f"sample {SHOWN} (record record-000000.pcr" in str(caught.value)
    with pytest.raises(ConfigError) as refused:
        pcr.open(hostile, scan="baseline", label="none")
    assert f"wanted one of {SHOWN}, the labels" in str(refused.value)


def test_remarks_that_records_bring_along_are_shown(
    hostile: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from composing import compose

    import pcr_exp.records.bucket  # noqa: F401  # a first import below would keep what is put in place here

    folder, config = hostile.parent, compose("prepare", "dataset=photos")
    monkeypatch.setattr("pcr_exp.cli.prepare.prepare_records", lambda *_, **__: folder)
    monkeypatch.setattr("pcr_exp.cli.prepare.read_remarks", lambda _: [HOSTILE])
    with caplog.at_level(logging.INFO):
        preparing.prepare(replace(config))
    assert SHOWN in lines(capsys.readouterr().out)


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_becomes_one_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() and printable(shown) == shown
    if "\\" not in text:
        assert shown.encode("ascii", "backslashreplace").decode("unicode_escape") == text
    assert str(PcrExpError(text)) == shown and some([text]) == shown


def test_what_is_printable_stays() -> None:
    assert printable("Käfer 猫/0001 (2).jpg") == "Käfer 猫/0001 (2).jpg"


def test_an_error_comes_whole_out_of_another_process() -> None:
    error = SettingError("loader.lanes", [3], "at least 1")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "loader.lanes=[3]: wanted at least 1."
    assert (again.key, again.given, again.wanted) == ("loader.lanes", [3], "at least 1")
