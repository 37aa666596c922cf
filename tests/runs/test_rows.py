"""The validator refuses impossible rows; the row file keeps exactly the rows that count."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.errors import ConfigError, RunError, StorageError
from pcr_exp.runs.rows import RowFile, deterministic_part, read_rows, validate_row
from pcr_exp.system.columns import ROW_KINDS, Column
from pcr_exp.training.columns import COLUMNS, with_declared

TRAFFIC = [column.name for column in COLUMNS if column.presence == "team"]


def row(kind: str = "train", **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "kind": kind,
        "epoch": 1,
        "step": 10,
        "samples_seen": 640,
        "scan_group": 5,
        "learning_rate": 0.1,
        "train_s": 4.0,
        "wait_s": 3.0,
        "probe_s": 0.5,
        "eval_s": 1.5,
        "other_s": 1.0,
        "probe_bytes": 100,
        "wall_s": 10.0,
        "record_bytes": 1000,
        "bytes_read": 1200,
        "train_loss": 2.5,
    }
    if kind == "train":
        values |= {"images_per_s": 91.0, "storage_mib_per_s": 0.5, "wait_share": 0.43}
    elif kind == "policy":
        values |= {"group": 2, "measure": "cosine", "scores": {"1": -0.1, "2": 0.9}, "bytes_saved": 7}
        del values["train_loss"]
    else:
        values |= {"val_loss": 2.4, "val_top1": 0.5, "val_top5": None, "num_val": 100, "eval_group": "full"}
    return values | changes


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_a_good_row_passes(kind: str) -> None:
    validate_row(row(kind))


def test_whole_numbers_are_good_reals() -> None:
    validate_row(row(train_loss=2, learning_rate=0))


@pytest.mark.parametrize(
    ("kind", "name", "value", "wanted"),
    [
        ("train", "step", 1.5, r"step=1.5; wanted a whole number in \[1, inf\]"),
        ("train", "step", True, "step=True"),
        ("train", "step", 0, "step=0"),
        ("train", "train_loss", float("nan"), r"train_loss=nan; wanted a finite number"),
        ("train", "train_loss", float("inf"), "train_loss=inf"),
        ("train", "train_s", -1.0, "train_s=-1.0"),
        ("train", "train_loss", "2.5", "train_loss='2.5'"),
        ("train", "train_loss", None, "train_loss=None"),
        ("train", "wait_share", 1.01, r"wait_share=1.01; wanted a finite number in \[0, 1\]"),
        ("eval", "val_top1", 55.0, r"val_top1=55.0; wanted a finite number in \[0, 1\]"),
        ("eval", "val_top5", 2, r"or null"),
        ("eval", "val_recall", {"nv": 1.2}, r"in \[0, 1\] or null, or one for each class"),
        ("policy", "group", 0, r"group=0; wanted a whole number in \[1, inf\]"),
        ("policy", "measure", "taste", "measure='taste'; wanted given or ms_ssim or cosine"),
        ("policy", "scores", {"1": float("nan")}, "a finite number for each scan group"),
        ("policy", "scores", {"one": 0.5}, "a finite number for each scan group"),
        ("policy", "scores", [0.5], "a finite number for each scan group"),
    ],
)
def test_values_that_a_column_cannot_have(kind: str, name: str, value: object, wanted: str) -> None:
    with pytest.raises(RunError, match=wanted):
        validate_row(row(kind, **{name: value}))


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_every_column_is_needed_and_no_other_known(kind: str) -> None:
    always = {column.name for column in COLUMNS if kind in column.rows and column.presence == "always"}
    for name in always:
        incomplete = row(kind)
        del incomplete[name]
        with pytest.raises(RunError, match=rf"missing columns \['{name}'\]"):
            validate_row(incomplete)
    with pytest.raises(RunError, match=r"unknown columns \['time_to_accuracy_s'\]"):
        validate_row(row(kind, time_to_accuracy_s=3.0))


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_columns_of_several_processes_come_together(kind: str) -> None:
    traffic = dict.fromkeys(TRAFFIC, 1)
    validate_row(row(kind, **traffic))
    del traffic["pushed_bytes"]
    with pytest.raises(RunError, match=r"missing columns \['pushed_bytes'\]"):
        validate_row(row(kind, **traffic))
    with pytest.raises(RunError, match=r"bytes_sent=1.5; wanted a whole number"):
        validate_row(row(kind) | dict.fromkeys(TRAFFIC, 1) | {"bytes_sent": 1.5})


def test_traffic_only_grows(tmp_path: Path) -> None:
    rows = [row(**dict.fromkeys(TRAFFIC, sent)) for sent in (5, 4)]
    path = write(tmp_path / "rows.jsonl", *(json.dumps(each) for each in rows))
    with pytest.raises(RunError, match="fell from 5 to 4"):
        read_rows(path)


@pytest.mark.parametrize("kind", ["test", None, ["eval"]])
def test_a_kind_that_there_is_not(kind: Any) -> None:
    with pytest.raises(RunError, match="wanted train or eval or policy"):
        validate_row(row() | {"kind": kind})


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_columns_that_came_later_may_be_missing_but_not_wrong(kind: str) -> None:
    validate_row(row(kind, samples_trained=1280, upstream_ratio=None))
    with pytest.raises(RunError, match=r"samples_trained=0.5; wanted a whole number in \[0, inf\]"):
        validate_row(row(kind, samples_trained=0.5))
    with pytest.raises(RunError, match=r"upstream_ratio=-1; wanted a finite number in \[0, inf\] or null"):
        validate_row(row(kind, upstream_ratio=-1))


def test_clocks_that_do_not_add_up() -> None:
    validate_row(row(train_s=4.05))
    with pytest.raises(RunError, match=r"the clocks add up to 10.5 s; wanted wall_s=10.0 s"):
        validate_row(row(train_s=4.5))


def test_columns_have_names_of_their_own_that_end_with_their_units() -> None:
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)
    endings = {"_mib_per_s": "MiB/s", "images_per_s": "images/s", "_s_per_sample": "s/image", "_s": "s"}
    for column in COLUMNS:
        wanted = next((unit for ending, unit in endings.items() if column.name.endswith(ending)), None)
        assert column.unit == wanted or (wanted is None and column.unit not in endings.values()), column.name
        assert ("bytes" in column.name) == (column.unit == "bytes"), column.name


def test_what_two_runs_of_one_configuration_share() -> None:
    one, other = row(), row(train_s=3.0, wait_s=4.0, bytes_read=7)
    assert deterministic_part([one]) == deterministic_part([other])
    assert deterministic_part([one]) != deterministic_part([row(train_loss=2.4)])


DEMAND = Column(
    name="demand", unit="images/s", meaning="what is wanted", rows=("policy",), presence="optional"
)


def test_a_policy_declares_columns_of_its_own_and_words_for_its_measure(tmp_path: Path) -> None:
    measure = Column(name="measure", unit="", meaning="taste", kind="word", words=("taste",))
    columns = with_declared([DEMAND, measure])
    validate_row(row("policy", demand=3.0, measure="taste"), columns)
    validate_row(row("policy"), columns)
    with pytest.raises(RunError, match="demand=-1; wanted a finite number"):
        validate_row(row("policy", demand=-1), columns)
    with pytest.raises(RunError, match=r"train row: .*unknown columns \['demand'\]"):
        validate_row(row("train", demand=3.0), columns)
    path = tmp_path / "rows.jsonl"
    with RowFile(path, 0, columns) as rows:
        rows.append(row("policy", demand=3.0))
    assert read_rows(path, columns)[0]["demand"] == 3.0
    with pytest.raises(RunError, match=r"line 1: .*unknown columns \['demand'\]"):
        read_rows(path)


@pytest.mark.parametrize("declared", [[replace(DEMAND, name="step")], [DEMAND, DEMAND]])
def test_a_declared_column_has_a_name_of_its_own(declared: list[Column]) -> None:
    with pytest.raises(ConfigError, match=f"declares the column '{declared[-1].name}'"):
        with_declared(declared)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_rows_are_read_in_order(tmp_path: Path) -> None:
    rows = [row(step=1), row("eval", step=1), row(step=2, bytes_read=1300)]
    assert read_rows(write(tmp_path / "rows.jsonl", *map(json.dumps, rows))) == rows


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("{", "line 2: .*"),
        ("[1]", "line 2: row: .*wanted a JSON object"),
        (json.dumps(row(kind="eval") | {"val_top1": 2}), "line 2: eval row: val_top1=2"),
        (json.dumps(row(step=9)), "line 2: step fell from 10 to 9"),
        (json.dumps(row(bytes_read=1)), "line 2: bytes_read fell"),
        (json.dumps(row(samples_trained=1)), "line 2: samples_trained fell from 1280 to 1"),
    ],
)
def test_the_line_that_is_wrong_is_named(tmp_path: Path, line: str, wanted: str) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps(row(samples_trained=1280)), line)
    with pytest.raises(RunError, match=f"rows.jsonl, {wanted}"):
        read_rows(path)


def test_a_policy_decides_before_the_first_update() -> None:
    validate_row(row("policy", epoch=0, step=0, samples_seen=0, scan_group=0))


def test_no_rows_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="wanted the rows of a run"):
        read_rows(tmp_path / "rows.jsonl")


def test_a_row_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with RowFile(path, 0) as rows:
        rows.append(row(step=1))
        assert read_rows(path) == [row(step=1)]
        with pytest.raises(RunError, match="train_loss=nan"):
            rows.append(row(train_loss=float("nan")))
        rows.sync()
        assert rows.num_rows == 1
    assert len(read_rows(path)) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full, a disk without room, is not here")
def test_a_full_disk_is_told_once_and_in_words(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="is full"),
        RowFile(tmp_path / "rows.jsonl", 0) as rows,
    ):
        rows._file.close()
        rows._file = Path("/dev/full").open("ab", buffering=0)  # noqa: SIM115
        rows.append(row(step=1))


def test_a_disk_that_cannot_be_flushed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with RowFile(tmp_path / "rows.jsonl", 0) as rows, pytest.raises(StorageError, match="cannot be written"):
        rows.sync()


def test_rows_behind_the_checkpoint_and_a_torn_line_are_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", *(json.dumps(row(step=step)) for step in (1, 2, 3)))
    with path.open("a") as file:
        file.write('{"kind": "tr')
    with RowFile(path, 2) as rows:
        rows.append(row(step=7))
    assert [r["step"] for r in read_rows(path)] == [1, 2, 7]
    with RowFile(path, 0):
        assert path.read_bytes() == b""


def test_a_torn_line_right_behind_the_checkpoint_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps(row(step=1)))
    with path.open("a") as file:
        file.write('{"kind": "tr')
    with RowFile(path, 1) as rows:
        rows.append(row(step=7))
    assert [r["step"] for r in read_rows(path)] == [1, 7]


def test_fewer_rows_than_the_checkpoint_knows_of(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps(row()))
    with pytest.raises(RunError, match=r"has 1 rows, but the run's checkpoint was made after 2"):
        RowFile(path, 2)
