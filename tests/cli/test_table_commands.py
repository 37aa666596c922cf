"""Commands on a table of photographs: its rows become records, and a task is learned from any column."""

from __future__ import annotations

import csv
from pathlib import Path

import cv2
import numpy as np
import pytest
from composing import compose

import pcr_exp
from pcr_exp.cli.prepare import prepare
from pcr_exp.errors import DatasetError, RecordError

NUM = 48


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose redness the columns tell: as a class, as one of two tags, and as a number."""
    root = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(NUM):
        image = rng.integers(0, 60, (40, 40, 3), dtype=np.uint8)  # BGR
        image[..., 2] += np.uint8(4 * i)
        image[..., 0] += np.uint8(150 * (i % 4 >= 2))
        cv2.imwrite(str(root / f"{i:02}.jpg"), image)
        part = ("train", "train", "train", "tune", "val")[i // 4 % 5]
        tags = ";".join([*(["blue"] if i % 4 >= 2 else []), *(["red"] if i >= NUM // 2 else [])])
        rows.append([f"{i:02}.jpg", "red" if i >= NUM // 2 else "dark", tags, i / 10, part])
    with (root / "labels.csv").open("w") as file:
        csv.writer(file).writerows([["file", "kind", "tags", "redness", "part"], *rows])
    return root / "labels.csv"


def settings(table: Path, root: Path, label: str = "kind", kind: str = "class", *more: str) -> list[str]:
    return [
        *(
            "dataset=table",
            f"dataset.table={table}",
            f"dataset.label={label}",
            f"dataset.columns.kind={kind}",
        ),
        *("dataset.columns.path=file", "dataset.columns.split=part", "dataset.images_per_record=8"),
        *(f"records.root={root / 'records'}", "records.num_workers=1", *more),
    ]


def test_rows_become_records_and_those_that_cannot_are_listed(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = table.with_name("longer.csv")
    longer.write_text(table.read_text() + "00.jpg,dark,,0,train\nnone.jpg,red,,1,val\n01.jpg,,,1,val\n")
    given = settings(longer, tmp_path, "kind", "class", "dataset.columns.labels=[part]")
    with pytest.raises(DatasetError, match=r"3 of 51 rows .*row 50 \(00.jpg\): listed twice.*row 52"):
        prepare(compose("prepare", *given))
    assert not (tmp_path / "records").exists()
    skipping = compose("prepare", *given, "records.on_error=skip")
    assert prepare(skipping) == "finished"
    (folder,) = (tmp_path / "records").iterdir()
    listed = (folder / "rejected.csv").read_text().splitlines()
    assert listed == [
        "id,reason",
        "row 50 (00.jpg),listed twice; the first row counts",
        "row 51 (none.jpg),no such file",
        "row 52 (01.jpg),no kind",
    ]
    assert "3 rows are left out: row 50 (00.jpg)" in capsys.readouterr().out
    val = pcr_exp.open(folder / "val", label="kind")
    assert {int(val.id(i)[:2]) // 4 % 5 for i in range(len(val))} == {4}
    assert {val.classes[label] for label in val.targets} == {"dark", "red"}
    assert set(pcr_exp.open(folder / "val", label="part").records.index.classes) == {"kind", "part"}
    prepare(compose("prepare", *given, "records.on_error=skip", "check=content"))


def test_a_changed_table_is_noticed(table: Path, tmp_path: Path) -> None:
    own = table.with_name("own.csv")
    own.write_text(table.read_text())
    prepare(compose("prepare", *settings(own, tmp_path)))
    own.write_text(own.read_text().replace("47.jpg,red", "47.jpg,dark"))
    with pytest.raises(RecordError, match=r"1 with other labels or in another split: 47.jpg"):
        prepare(compose("prepare", *settings(own, tmp_path)))
