"""Tables of paths and labels, split for training or read as a whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pcr_exp.config.records import records_name
from pcr_exp.datasets.sample import open_dataset, open_images
from pcr_exp.datasets.table import ColumnsConfig
from pcr_exp.errors import ConfigError, DatasetError

Put = Callable[..., None]
Make = Callable[..., Any]
NUM = 40


@pytest.fixture
def write(tmp_path: Path, put: Put) -> Callable[..., str]:
    """Write a table and the empty files that it may list, and return the table's path."""

    def make(text: str, name: str = "labels.csv") -> str:
        put(*(f"{i:02}.jpg" for i in range(NUM)))
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return make


def rows(num: int = NUM) -> str:
    return "\n".join(["path,label", *(f"{i:02}.jpg,{'dog' if i % 3 else 'cat'}" for i in range(num))])


def labels_of(images: Any) -> dict[str, dict[str, str]]:
    """Return the class name of each label, by image id."""
    named = images.classes.items()
    return {s.id: {label: names[s.labels[label]] for label, names in named} for s in images.samples}


def test_images_have_the_labels_of_their_rows_and_are_held_out_by_their_paths(
    write: Callable[..., str], make_config: Make
) -> None:
    dataset = open_dataset(make_config("table", root=None, table=write(rows()), tune_fraction=0.2))
    assert dataset.classes == {"label": ["cat", "dog"]}
    every = [sample for split in dataset.splits.values() for sample in split]
    assert len(every) == NUM and all(dataset.splits.values())
    assert all(sample.labels == {"label": int(int(sample.id[:2]) % 3 > 0)} for sample in every)
    assert all(sample.path.is_file() for sample in every) and len(dataset.seen.tables) == 1


def test_one_image_is_enough_to_be_looked_at(write: Callable[..., str], make_config: Make) -> None:
    config = make_config("table", root=None, table=write(rows(1)))
    (sample,) = open_images(config).samples
    assert (sample.id, sample.labels) == ("00.jpg", {"label": 0})
    with pytest.raises(DatasetError, match=r"the train split has no image|the val split has no image"):
        open_dataset(config)


def test_columns_and_folders_of_other_names(
    tmp_path: Path, write: Callable[..., str], make_config: Make
) -> None:
    table = write("\ufeffkind,file,more\nNA,05.jpg,x\n07,06.jpg,\n", "of mine.csv")
    (tmp_path / "elsewhere").mkdir()
    moved = Path(table).rename(tmp_path / "elsewhere" / "t.csv")
    config = make_config("table", table=str(moved), label="kind")
    config.columns.path = "file"
    images = open_images(config)
    assert images.classes == {"kind": ["07", "NA"]}, "as they stand there, and not as numbers"
    assert labels_of(images) == {"05.jpg": {"kind": "NA"}, "06.jpg": {"kind": "07"}}


def test_where_the_table_lies_and_what_its_columns_are_called_do_not_name_its_records(
    tmp_path: Path, write: Callable[..., str], make_config: Make
) -> None:
    here = make_config("table", root=None, table=write(rows()))
    columns = ColumnsConfig(path="p", split="s")
    there = make_config(
        "table", root=str(tmp_path / "x"), table=write(rows(), "o.csv"), columns=columns, on_error="skip"
    )
    assert records_name(here) == records_name(there)


PEOPLE = [
    {"path": "00.jpg", "label": 7, "dark": True, "part": "train", "who": "a"},
    {"path": "01.jpg", "label": 3, "dark": False, "part": "valid", "who": "b"},
    {"path": "02.jpg", "label": 7, "dark": False, "part": "test", "who": "b"},
]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_kinds_of_files_give_the_same_images_in_the_splits_and_groups_that_they_say(
    write: Callable[..., str], make_config: Make, kind: str
) -> None:
    frame = pd.DataFrame(PEOPLE)
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        table = write("", "t.parquet")
        frame.to_parquet(table)
    else:
        texts = {"jsonl": "\n".join(map(json.dumps, PEOPLE)), "csv": frame.to_csv(index=False)}
        texts["tsv"] = frame.to_csv(index=False, sep="\t")
        table = write(texts[kind], f"t.{kind}")
    columns = ColumnsConfig(
        labels=["dark"], split="part", splits={"valid": "tune", "test": "val"}, group="who"
    )
    dataset = open_dataset(make_config("table", root=None, table=table, columns=columns, tune_fraction=0.5))
    assert dataset.classes == {"label": ["3", "7"], "dark": ["False", "True"]}
    found = {split: [(s.id, s.labels, s.group) for s in dataset.splits[split]] for split in dataset.splits}
    assert found == {
        "train": [("00.jpg", {"label": 1, "dark": 1}, "a")],
        "tune": [("01.jpg", {"label": 0, "dark": 0}, "b")],
        "val": [("02.jpg", {"label": 1, "dark": 0}, "b")],
    }


def test_a_table_that_says_train_and_val_alone_has_its_tune_images_drawn_from_train(
    write: Callable[..., str], make_config: Make
) -> None:
    text = "\n".join(["path,label,s", *(f"{i:02}.jpg,a,{'val' if i < 8 else 'train'}" for i in range(NUM))])
    columns = ColumnsConfig(split="s")
    config = make_config("table", root=None, table=write(text), columns=columns, tune_fraction=0.3)
    dataset = open_dataset(config)
    assert {sample.id for sample in dataset.val} == {f"{i:02}.jpg" for i in range(8)}
    assert dataset.tune and len(dataset.tune) + len(dataset.train) == NUM - 8


@pytest.mark.parametrize(("kind", "cells"), [("csv", ["dog | cat", "cat|cat", ""]), ("jsonl", None)])
def test_cells_of_several_classes_are_sets(
    write: Callable[..., str], make_config: Make, kind: str, cells: list[str] | None
) -> None:
    lists = [["dog", "cat"], ["cat", "cat"], []]
    found = [{"path": f"0{i}.jpg", "label": c} for i, c in enumerate(cells or lists)]
    text = pd.DataFrame(found).to_csv(index=False) if cells else "\n".join(map(json.dumps, found))
    columns = ColumnsConfig(kind="several", separator="|")
    config = make_config("table", root=None, table=write(text, f"t.{kind}"), columns=columns)
    assert [names["label"] for _, names in sorted(labels_of(open_images(config)).items())] == [
        "cat;dog",
        "cat",
        "",
    ]


def test_values_need_not_be_in_every_split_and_nothing_is_said_of_it(
    write: Callable[..., str], make_config: Make
) -> None:
    text = "\n".join(["path,label", *(f"{i:02}.jpg,{i / 8}" for i in range(NUM))])
    columns = ColumnsConfig(kind="number")
    settings = {"root": None, "table": write(text), "tune_fraction": 0.2}
    numbers = open_dataset(make_config("table", columns=columns, **settings))
    assert numbers.seen.remarks == []
    assert open_dataset(make_config("table", **settings)).seen.remarks, "of classes"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "path,kind\n00.jpg,a",
            "class",
            "no column 'label'; it has path, kind. Name the columns: .*set.label=",
        ),
        ("path,label\n00.jpg,a\n01.jpg,", "class", r"1 of 2 rows .*row 3 \(01.jpg\): no label. .*on_error"),
        ("path,label\n00.jpg,a\n,b", "class", r"row 3: no path"),
        ("path,label\n00.jpg,a\n00.jpg,b", "class", r"row 3 \(00.jpg\): listed twice"),
        ("path,label\n00.jpg,a\nx/1.jpg,b\ny.jpg,b", "class", r"2 of 3 rows .*1.jpg\): no such .*\(y.jpg\)"),
        (
            "path,label\n00.jpg,1\n01.jpg,one\n02.jpg,inf",
            "number",
            r"2 of 3.*'one': not a finite number.*'inf'",
        ),
        ("path,label\n00.jpg,a;b|c", "several", r"a class name contains ';'"),
        ("path,label\n00.jpg,a\n./00.jpg,b", "class", r"row 3 \(./00.jpg\): listed twice"),
        ("path,label\n00.jpg,a\nx/../00.jpg,b", "class", r"row 3 .*: listed twice"),
        ("path,label\n00.jpg,a,\n01.jpg,b,", "class", r"rows have more cells .* Remove the commas"),
        ("path,label\n", "class", "lists no image"),
        ("", "class", "is not a readable CSV file"),
        ('path,label\n"00.jpg,a', "class", "is not a readable CSV file"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    write: Callable[..., str], make_config: Make, text: str, kind: str, message: str
) -> None:
    columns = ColumnsConfig(kind=kind, separator="|")
    with pytest.raises(DatasetError, match=message):
        open_images(make_config("table", root=None, table=write(text), columns=columns))


@pytest.mark.parametrize(("column", "is_said"), [("split", True), (None, False)])
def test_a_split_column_that_divides_a_group_is_said(
    write: Callable[..., str], make_config: Make, column: str | None, is_said: bool
) -> None:
    lines = [
        f"{i:02}.jpg,{'dog' if i % 3 else 'cat'},{'val' if i >= 30 else 'train'},p{i % 4 if i < 32 else i}"
        for i in range(NUM)
    ]
    table = write("\n".join(["path,label,split,group", *lines]))
    columns = ColumnsConfig(split=column, group="group")
    dataset = open_dataset(make_config("table", root=None, table=table, columns=columns, tune_fraction=0.1))
    said = "2 groups of dataset.columns.group=group have images that are assigned to val and others"
    assert any(said in remark for remark in dataset.seen.all_remarks()) == is_said


def test_lists_where_one_class_was_wanted_and_lines_that_are_no_rows(
    write: Callable[..., str], make_config: Make
) -> None:
    table = write('{"path": "00.jpg", "label": ["a"]}\n', "t.jsonl")
    with pytest.raises(DatasetError, match=r"row 1 .*\['a'\]: a list \(see dataset.columns.kind=several\)"):
        open_images(make_config("table", root=None, table=table))
    for text in ('{"path": \n', '"path"\n'):
        with pytest.raises(DatasetError, match=r"is not a readable JSON lines file|has no column 'path'"):
            open_images(make_config("table", root=None, table=write(text, "t.jsonl")))


def test_rows_that_are_no_images_are_left_out_if_that_is_asked_for(
    write: Callable[..., str], make_config: Make, tmp_path: Path
) -> None:
    text = rows() + "\n00.jpg,cat\nnot/there.jpg,dog\nx.jpg,dog\n01.jpg,\n"
    config = make_config("table", root=None, table=write(text), on_error="skip")
    seen = open_images(config).seen
    assert len(open_images(config).samples) == NUM
    assert list(seen.refused) == [f"row {42 + i} ({n})" for i, n in enumerate(
        ("00.jpg", "not/there.jpg", "x.jpg", "01.jpg")
    )]  # fmt: skip
    assert any("4 rows are left out: row 42 (00.jpg): listed twice" in said for said in seen.all_remarks())
    assert tmp_path in seen.folders, "it changes when x.jpg comes"
    with pytest.raises(DatasetError, match=r"1 of 1 rows cannot be used"):
        open_images(make_config("table", root=None, table=write("path,label\nx.jpg,a"), on_error="skip"))


def test_words_for_splits_that_nobody_explained(write: Callable[..., str], make_config: Make) -> None:
    table = write("path,label,s\n00.jpg,a,train\n01.jpg,a,dev\n")
    with pytest.raises(DatasetError, match=r"s is dev; wanted train, tune, val. .*columns.splits.dev=val"):
        open_images(make_config("table", root=None, table=table, columns=ColumnsConfig(split="s")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "colour"}, "dataset.columns.kind='colour': wanted class or several or number"),
        ({"separator": ""}, "dataset.columns.separator='': wanted a text"),
        ({"splits": {"x": "test"}}, r"dataset.columns.splits=\{'x': 'test'\}: wanted for each word one of"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ColumnsConfig(**settings)


def test_a_table_that_is_not_there(tmp_path: Path, make_config: Make) -> None:
    with pytest.raises(DatasetError, match=r"dataset.table is null: table wants a file of paths and labels"):
        open_images(make_config("table"))
    with pytest.raises(DatasetError, match=r"nothing.csv does not exist. Give a table"):
        open_images(make_config("table", table=str(tmp_path / "nothing.csv")))
    with pytest.raises(DatasetError, match=r"is a folder. Give a table"):
        open_images(make_config("table", table=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"dataset.columns.path='path': wanted another column than dataset"):
        make_config("table", label="path")
    with pytest.raises(ConfigError, match=r"dataset.on_error='no': wanted fail or skip"):
        make_config("table", on_error="no")


def test_parquet_without_pyarrow_says_what_to_install(
    write: Callable[..., str], make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    table = write("", "t.parquet")
    with pytest.raises(DatasetError, match=r"pyarrow, which cannot .*pip install 'pcr-exp\[tables\]'"):
        open_images(make_config("table", root=None, table=table))


def test_columns_of_fields_are_files_or_stand_in_their_cells(
    tmp_path: Path, write: Callable[..., str], make_config: Make
) -> None:
    for name in ("0.png", "1.png", "boxes.json", "a.npy"):
        (tmp_path / name).write_bytes(b"")
    table = pd.DataFrame(
        [
            ["00.jpg", "a", "0.png", "[[1, 2, 3, 4]]", "", '{"x": 1}', "a.npy"],
            ["01.jpg", "b", "1.png", "boxes.json", "two, three", "boxes.json", "a.npy"],
            ["02.jpg", "b", "1.png", "", "x", "[]", str(tmp_path / "a.npy")],
        ],
        columns=["path", "label", "m", "b", "t", "j", "n"],
    ).to_csv(index=False)
    columns = ColumnsConfig(mask="m", boxes="b", text="t", json="j", array="n")
    config = make_config("table", root=None, table=write(table), columns=columns, val_fraction=0.5)
    assert columns.fields == {"array": "n", "boxes": "b", "json": "j", "mask": "m", "text": "t"}
    found = {sample.id: sample.fields for sample in open_images(config).samples}
    assert found["00.jpg"] == {
        "array": tmp_path / "a.npy",
        "boxes": b"[[1, 2, 3, 4]]",
        "json": b'{"x": 1}',
        "mask": tmp_path / "0.png",
        "text": b"",
    }
    assert found["01.jpg"]["boxes"] == found["01.jpg"]["json"] == tmp_path / "boxes.json"
    assert found["01.jpg"]["text"] == b"two, three"
    assert (found["02.jpg"]["boxes"], found["02.jpg"]["array"]) == (b"", tmp_path / "a.npy")
    dataset = open_dataset(make_config("table", root=None, table=write(rows(), "r.csv")))
    assert dataset.fields == {}


def test_lists_and_objects_of_json_lines_are_boxes_and_json(
    write: Callable[..., str], make_config: Make
) -> None:
    lines = [
        {"path": "00.jpg", "label": "a", "b": [[1, 2, 3, 4], [0, 0, 1.5, 2]], "j": {"x": [None, "y"]}},
        {"path": "01.jpg", "label": "a", "b": [], "j": "[1]"},
        {"path": "02.jpg", "label": "a", "b": None, "j": [2]},
    ]
    table = write("\n".join(map(json.dumps, lines)), "t.jsonl")
    columns = ColumnsConfig(boxes="b", json="j")
    found = open_images(make_config("table", root=None, table=table, columns=columns)).samples
    of_ids = {
        sample.id: {name: json.loads(source or b"[]") for name, source in sample.fields.items()}
        for sample in found
    }
    assert of_ids["00.jpg"] == {"boxes": lines[0]["b"], "json": lines[0]["j"]}
    assert (of_ids["01.jpg"], of_ids["02.jpg"]) == ({"boxes": [], "json": [1]}, {"boxes": [], "json": [2]})


def test_texts_of_json_lines_may_contain_any_character(write: Callable[..., str], make_config: Make) -> None:
    texts = ["one\u2028two\x85three", "half of a pair: \ud83d"]
    lines = [json.dumps({"path": "00.jpg", "label": "a", "t": texts[0]}, ensure_ascii=False)]
    columns = ColumnsConfig(text="t")
    config = make_config("table", root=None, table=write("\n".join(lines), "t.jsonl"), columns=columns)
    assert open_images(config).samples[0].fields == {"text": texts[0].encode()}
    lines.append(json.dumps({"path": "01.jpg", "label": "a", "t": texts[1]}))
    write("\n".join(lines), "t.jsonl")
    with pytest.raises(
        DatasetError, match=r"01\.jpg\): text is not Unicode text: it has half of a character"
    ):
        open_images(config)


def test_rows_that_lack_a_field_are_named_or_left_out(
    tmp_path: Path, write: Callable[..., str], make_config: Make
) -> None:
    (tmp_path / "0.png").write_bytes(b"")
    table = write("path,label,mask\n00.jpg,a,0.png\n01.jpg,a,gone.png\n02.jpg,a,\n")
    columns = ColumnsConfig(mask="mask")
    with pytest.raises(
        DatasetError, match=r"row 3 \(01.jpg\): no such mask: .*gone\.png, row 4 \(02.jpg\): no mask"
    ):
        open_images(make_config("table", root=None, table=table, columns=columns))
    config = make_config("table", root=None, table=table, columns=columns, on_error="skip")
    assert [sample.id for sample in open_images(config).samples] == ["00.jpg"]
