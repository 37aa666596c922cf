"""A CSV file of paths and labels, divided to train on, and undivided to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.config.records import records_name
from pcr_exp.datasets.sample import open_dataset, open_images
from pcr_exp.errors import ConfigError, DatasetError

Put = Callable[..., None]
Make = Callable[..., Any]
NUM = 40


@pytest.fixture
def write(tmp_path: Path, put: Put) -> Callable[..., str]:
    """Write a table, and empty files of the names that it may list; returns its path."""

    def make(text: str, name: str = "labels.csv") -> str:
        put(*(f"{i:02}.jpg" for i in range(NUM)))
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return make


def rows(num: int = NUM) -> str:
    return "\n".join(["path,label", *(f"{i:02}.jpg,{'dog' if i % 3 else 'cat'}" for i in range(num))])


def test_images_have_the_labels_of_their_rows_and_are_held_out_by_their_paths(
    write: Callable[..., str], make_config: Make
) -> None:
    dataset = open_dataset(make_config("table", root=None, table=write(rows()), tune_fraction=0.2))
    assert dataset.classes == {"label": ["cat", "dog"]}
    every = [sample for split in dataset.splits.values() for sample in split]
    assert len(every) == NUM and all(dataset.splits.values())
    assert all(sample.labels == {"label": int(int(sample.id[:2]) % 3 > 0)} for sample in every)
    assert all(sample.path.is_file() for sample in every) and len(dataset.looked.tables) == 1


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
    assert {sample.id: sample.labels["kind"] for sample in images.samples} == {"05.jpg": 1, "06.jpg": 0}


def test_where_the_table_lies_does_not_name_its_records(
    tmp_path: Path, write: Callable[..., str], make_config: Make
) -> None:
    here = make_config("table", root=None, table=write(rows()))
    there = make_config("table", root=str(tmp_path / "x"), table=write(rows(), "other.csv"))
    assert records_name(here) == records_name(there)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,kind\n00.jpg,a", "has no column 'label' but path, kind. Name the columns: .*dataset.label="),
        ("path,label\n00.jpg,a\n01.jpg,", "row 3: path='01.jpg', label=''; wanted both"),
        ("path,label\n00.jpg,a\n00.jpg,b", "row 3: 00.jpg is listed twice"),
        ("path,label\n00.jpg,a\nx/1.jpg,b\ny.jpg,b", r"2 of 3 images are not in .*: x/1.jpg, y.jpg"),
        ("path,label\n", "lists no image"),
        ("", "is no readable CSV file"),
        ('path,label\n"00.jpg,a', "is no readable CSV file"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    write: Callable[..., str], make_config: Make, text: str, message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        open_images(make_config("table", root=None, table=write(text)))


def test_a_table_that_is_not_there(tmp_path: Path, make_config: Make) -> None:
    with pytest.raises(DatasetError, match=r"dataset.table is null: table wants a file of paths and labels"):
        open_images(make_config("table"))
    with pytest.raises(DatasetError, match=r"nothing.csv does not exist. Give a CSV file"):
        open_images(make_config("table", table=str(tmp_path / "nothing.csv")))
    with pytest.raises(DatasetError, match=r"is a folder. Give a CSV file"):
        open_images(make_config("table", table=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"dataset.columns.path='path': wanted another column than dataset"):
        make_config("table", label="path")
