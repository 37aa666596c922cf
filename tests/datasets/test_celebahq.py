from __future__ import annotations

from pathlib import Path

import pytest

from pcr_exp.datasets.celebahq import read
from pcr_exp.errors import DatasetError

ATTRIBUTES = ["Bald", "Smiling", "Young"]
ANNOTATION = "CelebAMask-HQ-attribute-anno.txt"


def write_annotation(
    root: Path, num: int, *, says: object = None, header: str = " ".join(ATTRIBUTES)
) -> None:
    rows = [f"{i}.jpg  1 {1 if i % 3 == 0 else -1} -1" for i in range(num)]
    (root / ANNOTATION).write_text("\n".join([str(num if says is None else says), header, *rows]) + "\n")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, put) -> Path:
    put(*(f"CelebA-HQ-img/{i}.jpg" for i in range(30)))
    write_annotation(tmp_path, 30)
    return tmp_path


def test_reads_smiles(root: Path, make_config):
    dataset = read(make_config("celebahq"))
    assert dataset.classes == {"smiling": ["not_smiling", "smiling"]}
    assert len({sample.id for sample in dataset.train + dataset.val}) == 30
    for sample in dataset.train + dataset.val:
        assert sample.path == root / sample.id
        assert sample.labels == {"smiling": int(int(sample.path.stem) % 3 == 0)}


def test_a_new_picture_moves_no_other(root: Path, make_config, put):
    config = make_config("celebahq", tune_fraction=0.2)
    before = {sample.id: split for split, chosen in read(config).splits.items() for sample in chosen}
    put("CelebA-HQ-img/30.jpg")
    write_annotation(root, 31)
    after = {sample.id: split for split, chosen in read(config).splits.items() for sample in chosen}
    assert len(after) == 31 and after.items() >= before.items()
    assert set(before.values()) == {"train", "tune", "val"}


def test_split_by_file_is_the_papers(make_config):
    """val is the start of numpy's RandomState(42).permutation(30), which indexes names in numeric order."""
    assert {sample.path.stem for sample in read(make_config("celebahq", split="file")).val} == {
        "27",
        "15",
        "23",
        "17",
        "8",
        "9",
    }
    assert len(read(make_config("celebahq", split="file", val_fraction=0.5)).val) == 15


def test_subset_of_the_pictures_works_with_a_remark(root: Path, make_config):
    write_annotation(root, 100)
    dataset = read(make_config("celebahq"))
    assert len(dataset.train + dataset.val) == 30
    assert any("70 of 100 images" in remark for remark in dataset.seen.all_remarks())


def test_picture_without_row_is_left_out_with_a_remark(make_config, put):
    put("CelebA-HQ-img/me.jpg")
    dataset = read(make_config("celebahq"))
    assert len(dataset.train + dataset.val) == 30
    assert any("me.jpg" in remark for remark in dataset.seen.all_remarks())


def test_none_of_the_pictures_there(root: Path, make_config):
    for path in (root / "CelebA-HQ-img").iterdir():
        path.unlink()
    with pytest.raises(DatasetError, match=r"lists 30 images, but none exists: 0\.jpg"):
        read(make_config("celebahq"))


def test_folder_missing(root: Path, make_config):
    (root / "CelebA-HQ-img").rename(root / "images")
    with pytest.raises(DatasetError, match=r"CelebA-HQ-img is missing.* holds .*images/.*authors' page"):
        read(make_config("celebahq"))


def test_annotation_missing(root: Path, make_config):
    (root / ANNOTATION).unlink()
    with pytest.raises(DatasetError, match=rf"{ANNOTATION} is missing.*authors' page"):
        read(make_config("celebahq"))


@pytest.mark.parametrize("text", ["", "30\n", "a\nb\nc\n"])
def test_not_an_annotation_file(root: Path, make_config, text: str):
    (root / ANNOTATION).write_text(text)
    with pytest.raises(DatasetError, match="wanted a count, a line of attribute names and one row per image"):
        read(make_config("celebahq"))


def test_attribute_missing(root: Path, make_config):
    write_annotation(root, 30, header="Bald Young Male")
    with pytest.raises(DatasetError, match="line 2: no attribute 'Smiling' among 3"):
        read(make_config("celebahq"))


@pytest.mark.parametrize("bad", ["30.jpg 1 1", "30.jpg 1 1 1 1", "30.jpg 1 0 1", "30.jpg 1 yes 1"])
def test_bad_row(root: Path, make_config, bad: str):
    with (root / ANNOTATION).open("a") as file:
        file.write(bad + "\n")
    with pytest.raises(DatasetError, match="line 33: wanted an image's name and 3 values of 1 or -1"):
        read(make_config("celebahq"))


def test_annotation_cut_short(root: Path, make_config):
    write_annotation(root, 20, says=30)
    with pytest.raises(DatasetError, match="says 30 images but lists 20: it may be cut short"):
        read(make_config("celebahq"))
