"""`python -m pcr_exp inspect|verify|extract|doctor`."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from storage_http_server import range_server

from pcr_exp.cli import main
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import RecordError
from pcr_exp.images.decode import decode
from pcr_exp.images.jpeg import EOI
from pcr_exp.measuring import doctor
from pcr_exp.records.encode import encode_split
from pcr_exp.records.format import RecordHeader, pack_record
from pcr_exp.records.inspect import ClassNumbers, index_of_record
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

REPO = Path(__file__).parents[2]
Output = pytest.CaptureFixture[str]


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.fixture
def copy(split: Path, tmp_path: Path) -> Path:
    """Copy of the records that a test may damage."""
    shutil.copytree(split, tmp_path / "train")
    return tmp_path / "train"


def test_inspect_says_what_is_in_a_split(split: Path, capsys: Output) -> None:
    assert main(["inspect", str(split)]) == 0
    said = capsys.readouterr().out
    assert "pcr: astronaut/train, pcr" in said and "baseline: astronaut/train, baseline" in said
    assert "100 images in 7 records" in said and "label parity: 2 classes (even, odd)" in said
    index = RecordSet(LocalStorage(split), "pcr").index
    shares = [line.split() for line in said.splitlines() if line.endswith("%")]
    assert len(shares) == 11 and shares[9][-1] == "100.0%"
    assert shares[1][-1] == f"{index.epoch_bytes(2) / index.epoch_bytes(10):.1%}"


def test_inspect_of_a_record_lists_its_images_also_without_an_index(copy: Path, capsys: Output) -> None:
    file = copy / "pcr/record-000001.pcr"
    assert main(["inspect", str(file), "--samples", "2"]) == 0
    with_index = capsys.readouterr().out
    assert "16 images in 1 record" in with_index and "016.jpg  number=16, parity=0" in with_index
    assert "... 14 more images (--samples 16)" in with_index
    (copy / "pcr/index.json").unlink()
    assert main(["inspect", str(file), "--samples", "2"]) == 0
    without = capsys.readouterr().out
    assert without.splitlines()[-3:] == with_index.splitlines()[-3:]


def test_a_record_whose_label_is_beyond_all_bounds_takes_no_memory(tmp_path: Path, capsys: Output) -> None:
    header = RecordHeader("d", "train", "baseline", "ab", 1, ["a.jpg", "b.jpg"], {"kind": [2**31, 7]})
    path = tmp_path / "record-000000.pcr"
    path.write_bytes(b"".join(pack_record(header, [[b"x"], [b"y"]]).chunks))
    tracemalloc.start()
    try:
        for command in ("inspect", "verify"):
            assert main([command, str(path)]) == 0
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    said = capsys.readouterr().out
    assert "label kind: 2 class numbers, whose names are in an index (7, 2147483648)" in said
    assert "a.jpg  kind=2147483648" in said and "1 of 1 record is whole" in said


def test_numbers_of_classes_are_a_list_that_is_not_there() -> None:
    numbers = ClassNumbers([5, 2**31, 5])
    assert len(numbers) == 2**31 + 1 and numbers.used == [5, 2**31]
    assert (numbers[3], numbers[-1], numbers[:3]) == ("3", "2147483648", ["0", "1", "2"])
    with pytest.raises(IndexError):
        numbers[2**31 + 1]
    assert len(ClassNumbers([])) == 0


def test_a_record_s_own_index_is_the_index_s(split: Path) -> None:
    records = RecordSet(LocalStorage(split / "pcr"), "")
    for entry in records.index.records:
        assert index_of_record(records.storage, entry.file).records == [entry]


def test_a_record_that_is_cut_short_has_no_index(copy: Path) -> None:
    storage, name = LocalStorage(copy / "pcr"), "record-000000.pcr"
    entry = index_of_record(storage, name).records[0]
    data = (copy / "pcr" / name).read_bytes()
    for end, message in (
        (entry.group_ends[4] + 3, "group 6 of .* is cut short"),
        (len(data) - 1, "groups end at"),
    ):
        (copy / "pcr" / name).write_bytes(data[:end])
        with pytest.raises(RecordError, match=message):
            index_of_record(storage, name)


def test_verify_finds_whole_records_whole(split: Path, capsys: Output) -> None:
    assert main(["verify", str(split)]) == 0
    assert "14 of 14 records are whole" in capsys.readouterr().out


def test_verify_names_what_is_damaged(copy: Path, capsys: Output) -> None:
    records = RecordSet(LocalStorage(copy), "pcr")
    damage(copy / "pcr/record-000002.pcr", int(records.read_prefix(2, 3).bounds(3)[4]))
    with (copy / "baseline/record-000000.pcr").open("ab") as file:
        file.write(b"more")
    (copy / "baseline/record-000003.pcr").unlink()
    damage(copy / "baseline/record-000004.pcr", 30)
    assert main(["verify", str(copy), "--threads", "2"]) == 1
    said = capsys.readouterr().out
    assert "damaged: pcr/record-000002.pcr: image 036.jpg, group 3\n" in said
    assert said.count("image 0") == 1 + said.count("first in image 0")
    assert "baseline/record-000000.pcr: it has" in said and "4 more than its groups" in said
    assert "missing: baseline/record-000003.pcr: index.json lists it, but it does not exist" in said
    assert "record-000004.pcr is damaged in its header" in said
    assert "10 of 14 records are whole" in said


def test_verify_over_http(split: Path, capsys: Output) -> None:
    with range_server(split.parent) as server:
        assert main(["verify", f"{server.url}/records/pcr/record-000006.pcr"]) == 0
        assert main(["verify", f"{server.url}/records"]) == 0
    assert "1 of 1 record is whole" in capsys.readouterr().out


def test_extract_writes_the_pieces_and_their_end(split: Path, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "image.jpg"
    prefix = RecordSet(LocalStorage(split), "pcr").read_prefix(1, 2)
    assert main(["extract", str(split), "17", "--group", "2", "-o", str(out)]) == 0
    assert out.read_bytes() == prefix.encoded(1)
    assert f"image 017.jpg, scan group 2, {len(prefix.encoded(1))} bytes" in capsys.readouterr().out
    assert main(["extract", str(split), "017.jpg", "--group", "2", "-o", str(out), "--pieces"]) == 1
    assert "already exists" in capsys.readouterr().err and out.read_bytes() == prefix.encoded(1)
    assert (
        main(["extract", str(split), "017.jpg", "--group", "2", "-o", str(out), "--pieces", "--force"]) == 0
    )
    assert out.read_bytes() + EOI == prefix.encoded(1)


def test_extract_finds_an_image_of_any_split(copy: Path, split: Path, capfdbinary: Any) -> None:
    photo = split.parent / "other.jpg"
    photo.write_bytes((split.parent / "003.jpg").read_bytes())
    samples = [Sample("other.jpg", photo, {"number": 0})]
    encode_split(
        samples, {"number": ["0"]}, copy.parent / "val", dataset="it", split="val", images_per_record=1
    )
    assert main(["extract", str(copy.parent), "other.jpg", "-o", "-"]) == 0
    assert decode(capfdbinary.readouterr().out).shape == decode(photo.read_bytes()).shape
    assert main(["extract", str(copy.parent), "another.jpg", "-o", "-"]) == 1
    told = capfdbinary.readouterr().err.decode()
    assert "train/pcr, val/pcr: there is no image 'another.jpg'" in told and "0 to 99 in train" in told


def test_extract_to_standard_output(split: Path, capfdbinary: Any) -> None:
    assert main(["extract", str(split / "baseline"), "3", "-o", "-"]) == 0
    original = (split.parent / "003.jpg").read_bytes()
    assert capfdbinary.readouterr().out == original


def test_extract_without_a_name_takes_the_image_s(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["extract", str(split), "42"]) == 0
    assert Image.open(io.BytesIO((tmp_path / "042-group10.jpg").read_bytes())).size == (60, 52)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["extract", "{}", "100"], "no image '100'. Wanted an image's id, or its position from 0 to 99"),
        (["extract", "{}", "cat.jpg"], "no image 'cat.jpg'"),
        (["extract", "{}", "1", "--group", "11", "-o", "-"], "scan group 11 was asked for"),
        (["extract", "{}", "1", "--group", "11", "-o", "-", "--pieces"], "scan group 11 was asked for"),
        (["inspect", "{}/nothing"], "there are no records. Wanted a record"),
        (["inspect", "{}/nothing.pcr"], "does not exist"),
    ],
)
def test_what_is_not_there(split: Path, arguments: list[str], message: str, capsys: Output) -> None:
    assert main([argument.format(split) for argument in arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "two", "1.5"])
def test_numbers_below_one_are_refused(number: str, capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main(["verify", "records", "--threads", number])
    assert f"{number}: wanted 1 or more" in capsys.readouterr().err


def test_doctor_says_what_is_there_and_what_is_not(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PROBE_BYTES", 2**20)
    assert main(["doctor", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for what in ("python", "torch", "transcoder", "cores", "memory", "open files", "shared memory"):
        assert f"\nok      {what}" in f"\n{said}" or f"\nnote    {what}" in said, what
    assert "MiB/s" in said and list(tmp_path.iterdir()) == []
    assert main(["doctor", str(tmp_path / "nowhere")]) == 0
    elsewhere = capsys.readouterr().out
    assert "not measured: No such file or directory" in elsewhere and "extra remote" in elsewhere
    (remote,) = [line for line in said.splitlines() if "extra remote" in line]
    clients = ("obstore", "tenacity", "aiohttp", "s3fs", "gcsfs")
    assert all(re.search(rf"\b{name} (\d+\.\S+|missing)", remote) for name in clients), remote

    def missing() -> None:
        raise RecordError("install it")

    monkeypatch.setattr(doctor, "find_transcoder", missing)
    monkeypatch.setattr(doctor, "find_part_decoder", lambda: None)
    monkeypatch.setattr(doctor, "find_decoder", lambda: None)
    monkeypatch.setattr(doctor, "_NEEDED", ("no-such-package",))
    monkeypatch.setattr(doctor, "_EXTRAS", {"more": ("no-such-package",)})
    assert main(["doctor", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "MISSING no-such-package" in said and "-> pip install no-such-package" in said
    assert "libturbojpeg decodes instead, and" in said and "with a C compiler, install pcr-exp again" in said
    assert "-> install it" in said and "pip install turbojpeg" in said and "'pcr-exp[more]'" in said


def test_it_is_a_program(split: Path) -> None:
    command = [sys.executable, "-m", "pcr_exp", "inspect", str(split / "pcr" / "record-000000.pcr")]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    assert "16 images in 1 record" in done.stdout
