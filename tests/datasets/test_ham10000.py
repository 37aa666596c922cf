from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pcr_exp.datasets.ham10000 import DIAGNOSES, read
from pcr_exp.errors import DatasetError

HEADER = "lesion_id,image_id,dx,dx_type,age,sex,localization"


def row(image: int, lesion: int) -> str:
    return f"HAM_{lesion:07d},ISIC_{image:07d},{DIAGNOSES[lesion % 7]},histo,40.0,male,back"


def write_table(root: Path, *rows: str, header: str = HEADER) -> None:
    (root / "HAM10000_metadata.csv").write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, put) -> Path:
    """Create 100 photographs of 40 lesions in both folders."""
    put(*(f"HAM10000_images_part_{1 + i % 2}/ISIC_{i:07d}.jpg" for i in range(100)))
    write_table(tmp_path, *(row(i, i * 7 % 40) for i in range(100)))
    return tmp_path


def lesion_of(sample) -> int:
    return int(sample.path.stem.removeprefix("ISIC_")) * 7 % 40


@pytest.mark.parametrize("split", ["lesion", "file"])
def test_reads_both_parts(root: Path, make_config, split: str):
    dataset = read(make_config("ham10000", split=split))
    assert dataset.classes == {"dx": ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]}
    assert len({sample.id for sample in dataset.train + dataset.val}) == 100
    for sample in dataset.train + dataset.val:
        assert sample.path == root / sample.id
        assert sample.path.is_file()
        assert sample.labels == {"dx": lesion_of(sample) % 7}
    assert read(make_config("ham10000", split=split)) == dataset


def test_lesion_split_keeps_lesions_together(make_config):
    dataset = read(make_config("ham10000", split="lesion"))
    train, val = ({lesion_of(sample) for sample in split} for split in (dataset.train, dataset.val))
    assert not train & val
    assert len(train | val) == 40 and 3 <= len(val) <= 14


@pytest.mark.parametrize("split", ["lesion", "file"])
def test_no_lesion_that_is_tuned_by_is_trained_on(make_config, split: str):
    dataset = read(make_config("ham10000", split=split, tune_fraction=0.3))
    train, tune = ({lesion_of(sample) for sample in chosen} for chosen in (dataset.train, dataset.tune))
    assert tune and not train & tune


def test_a_new_lesion_moves_no_photograph(root: Path, make_config, put):
    config = make_config("ham10000", tune_fraction=0.2)
    before = {sample.id: split for split, chosen in read(config).splits.items() for sample in chosen}
    put("HAM10000_images_part_1/ISIC_0000100.jpg")
    write_table(root, *(row(i, i * 7 % 40) for i in range(100)), row(100, 77))
    after = {sample.id: split for split, chosen in read(config).splits.items() for sample in chosen}
    assert len(after) == 101 and after.items() >= before.items()


def test_file_split_is_the_papers(make_config):
    dataset = read(make_config("ham10000", split="file"))
    assert len(dataset.val) == 20
    assert {lesion_of(sample) for sample in dataset.train} & {lesion_of(sample) for sample in dataset.val}
    # numpy's RandomState(42).permutation(100) starts with 83, 53, 70: see numpy's and sklearn's own examples
    numbers = {int(sample.path.stem.removeprefix("ISIC_")) for sample in dataset.val}
    assert {83, 53, 70, 45, 44} <= numbers


def test_seed_and_fraction(make_config):
    default = read(make_config("ham10000"))
    assert {s.id for s in read(make_config("ham10000", split_seed=1)).val} != {s.id for s in default.val}
    assert len(read(make_config("ham10000", split="file", val_fraction=0.5)).val) == 50


@pytest.mark.parametrize("part", ["HAM10000_images_part_1", "HAM10000_images_part_2"])
def test_part_missing(root: Path, make_config, part: str):
    shutil.rmtree(root / part)
    with pytest.raises(DatasetError, match=rf"{part} is missing.*Harvard Dataverse"):
        read(make_config("ham10000"))


def test_table_missing(root: Path, make_config):
    (root / "HAM10000_metadata.csv").unlink()
    with pytest.raises(DatasetError, match=r"HAM10000_metadata\.csv or .* is missing.*Harvard Dataverse"):
        read(make_config("ham10000"))


def test_table_as_the_dataverse_names_it(root: Path, make_config):
    (root / "HAM10000_metadata.csv").rename(root / "HAM10000_metadata")
    assert len(read(make_config("ham10000")).train) > 0


def test_column_missing(root: Path, make_config):
    write_table(root, header="lesion,image_id,dx")
    with pytest.raises(DatasetError, match=r"has no column 'lesion_id'; it has lesion, image_id, dx"):
        read(make_config("ham10000"))


def test_no_rows(root: Path, make_config):
    write_table(root)
    with pytest.raises(DatasetError, match="lists no image"):
        read(make_config("ham10000"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("HAM_0000001,ISIC_0000001,wart,,,,", r"line 3: dx='wart'; wanted one of akiec"),
        (",ISIC_0000001,nv,,,,", r"line 3: lesion_id='', image_id='ISIC_0000001'; wanted both"),
        ("HAM_0000001,,nv,,,,", r"line 3: .*image_id=''; wanted both"),
        ("HAM_0000001", r"line 3: .*image_id=''; wanted both"),
        (row(0, 0), r"line 3: ISIC_0000000 is listed twice"),
    ],
)
def test_bad_row(root: Path, make_config, bad: str, message: str):
    write_table(root, row(0, 0), bad)
    with pytest.raises(DatasetError, match=message):
        read(make_config("ham10000"))


def test_listed_picture_missing(root: Path, make_config):
    (root / "HAM10000_images_part_2" / "ISIC_0000031.jpg").unlink()
    with pytest.raises(
        DatasetError, match=r"1 of the 100 images that .* lists are missing: ISIC_0000031\. Unpack"
    ):
        read(make_config("ham10000"))


def test_no_listed_picture_there(root: Path, make_config):
    write_table(root, row(900, 1), row(901, 2))
    with pytest.raises(DatasetError, match=r"lists 2 images, but none exists: ISIC_0000900"):
        read(make_config("ham10000"))


def test_picture_without_row_is_left_out_with_a_remark(make_config, put):
    put("HAM10000_images_part_1/ISIC_0000999.jpg")
    dataset = read(make_config("ham10000"))
    assert len(dataset.train + dataset.val) == 100
    (remark,) = [remark for remark in dataset.seen.all_remarks() if "is not in" in remark]
    assert remark.startswith("1 image is not in") and "ISIC_0000999" in remark
