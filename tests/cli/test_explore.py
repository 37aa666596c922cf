"""`pcr-exp explore`: its page, the settings that it refuses, and the page that `tolerance` writes."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from composing import compose
from numbered_records import encode_numbered, square_crops
from tolerance_rows import N, measured

from pcr_exp.analysis.tolerance import Measured
from pcr_exp.analysis.tolerance_page import write_tolerance
from pcr_exp.cli import main as command
from pcr_exp.cli.explore import main
from pcr_exp.errors import ConfigError
from pcr_exp.runs.identity import identity_of_study

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    jpegs = square_crops(((12 * i, 9 * i) for i in range(10)), 80, 90)
    return encode_numbered(
        jpegs, tmp_path_factory.mktemp("explore"), images_per_record=4, side=["left", "right"]
    )


def task() -> Measured:
    """Return a measurement of 400 images, the first ten of which are in the records."""
    rows = measured({(0, 2): 7, (0, 0): 3, (1, 2): 1})
    return replace(rows, ids=[f"{i:03d}.jpg" for i in range(N)])


def data_of(page: Path) -> dict[str, Any]:
    (found,) = re.findall(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return dict(json.loads(found))


def test_records_become_a_page_named_after_them(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["explore", str(split), "--images", "6", "--label", "side", "--crop-px", "32"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("astronaut-train.html: 6 images at 10 scan groups, ")
    data = data_of(tmp_path / "astronaut-train.html")
    assert [one["name"] for one in data["classes"]] == ["left", "right"] and data["cropPx"] == 32
    assert data["epoch"]["numImages"] == 10 and data["epoch"]["imagesPerRecord"] == pytest.approx(10 / 3)


def test_pages_of_ours_are_made_anew_and_other_files_are_not(
    split: Path, tmp_path: Path, capsys: Output
) -> None:
    page, mine = tmp_path / "page.html", tmp_path / "mine.html"
    for _ in range(2):
        main([str(split), "-o", str(page), "--images", "1"])
    mine.write_text("<!doctype html>my own")
    with pytest.raises(SystemExit):
        main([str(split), "-o", str(mine), "--images", "1"])
    assert "mine.html already exists and is not a page of this command" in capsys.readouterr().err
    assert mine.read_text() == "<!doctype html>my own"
    main([str(split), "-o", str(mine), "--images", "1", "--force"])
    assert data_of(mine)["images"]


def test_a_tolerance_folder_brings_its_task_label_and_images(split: Path, tmp_path: Path) -> None:
    write_tolerance(tmp_path / "task", replace(task(), facts=replace(task().facts, label="side")), {})
    page = tmp_path / "page.html"
    main([str(split), "-o", str(page), "--tolerance", str(tmp_path / "task"), "--images", "4"])
    data = data_of(page)
    assert data["cropPx"] == 64, "as the measurement"
    lost = data["task"]["uses"][0]["mistakes"][0]
    assert (lost["numLost"], len(lost["shown"])) == (7, 7)
    names = {image["id"] for image in data["images"]}
    assert {f"{i:03d}.jpg" for i in range(7)} <= names
    assert lost["shown"][1] == {"image": lost["shown"][1]["image"], "said": "left", "right": "right"}


def test_no_room_says_how_many_fit(split: Path, tmp_path: Path, capsys: Output) -> None:
    page = tmp_path / "page.html"
    main([str(split), "-o", str(page), "--max-mb", "0.25"])
    said = capsys.readouterr().err
    found = re.search(r"(\d+) images? fit in 0.25 MB; (\d+) more were requested", said)
    assert found is not None and int(found[1]) + int(found[2]) == 10
    assert page.stat().st_size < 250_000 and "fit in a page of 0.25 MB" in page.read_text()


def test_damaged_images_are_named_where_it_is_made(tmp_path: Path, capsys: Output) -> None:
    copy = encode_numbered(square_crops([(0, 0), (50, 50)], 80, 90), tmp_path, images_per_record=4)
    (record,) = (copy / "pcr").glob("*.pcr")
    data = bytearray(record.read_bytes())
    data[-3] ^= 255
    record.write_bytes(data)
    page = tmp_path / "page.html"
    main([str(copy), "-o", str(page)])
    captured = capsys.readouterr()
    assert re.search(r"left out: 00\d\.jpg: .*checksum does not match", captured.err)
    assert "1 image at 10 scan groups" in captured.out and "Left out: 1" in page.read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{nowhere}", "there are no records. Wanted a record"),
        (
            "{split}/baseline",
            "are baseline records, which have only one fidelity. Give the folder of progressive",
        ),
        ("{split} --images 0", "--images=0: wanted at least 1"),
        ("{split} --crop-px 8", "--crop-px=8: wanted at least 32"),
        ("{split} --crop-fraction 2", "eval_crop_fraction=2.0: wanted"),
        ("{split} --max-mb 0.1", "--max-mb=0.1: wanted more than 0.2"),
        ("{split} --label hue", "label 'hue': astronaut has no such label; wanted one of number, side"),
        (
            "{split} --label side --classes up",
            "class 'up': none of the images that were read has it; wanted some of left",
        ),
        ("{split} --storage tape", "--storage tape: wanted one of"),
        ("{split} --tolerance {nowhere}", "there is no tolerance.json. Wanted the folder of a finished"),
        ("{split} -o {nowhere}/missing/page.html", "there is no folder"),
        ("{split} -o {nowhere}", "that is a folder. Name a file in it"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_its_remedy(
    given: str, message: str, split: Path, tmp_path: Path, capsys: Output
) -> None:
    arguments = given.format(split=split, nowhere=tmp_path).split()
    with pytest.raises(SystemExit) as ended:
        main(["-o", str(tmp_path / "page.html"), *arguments])
    assert ended.value.code == 1 and message in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_the_help_says_the_command_as_it_is_typed(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/pcr-exp", "explore", "--help"])
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert "usage: pcr-exp explore" in said and "experiments." not in said and "--tolerance" in said


def test_the_page_is_no_part_of_what_tolerance_measures() -> None:
    with pytest.raises(ConfigError, match="num_explored_images=-1: wanted 0 or more"):
        compose("tolerance", "num_explored_images=-1")
    one, other = ({"dataset": {}, "num_explored_images": number} for number in (24, 0))
    assert identity_of_study(one, "key", {}) == identity_of_study(other, "key", {})
