"""`dataset=pcr_release` converts the release's records to ours, with the same JPEG bytes at every group."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import simplejpeg
from jpeg_photos import KINDS, PHOTO, groups_of, to_jpeg
from records_storage import FolderStorage
from release_writer import write_index, write_release

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.pcr_release import PcrReleaseConfig, read
from pcr_exp.datasets.release_files import ReleaseImage, read_index, read_record
from pcr_exp.errors import DatasetError, ImageError
from pcr_exp.images.jpeg import join_pieces, split_scans
from pcr_exp.images.transcode import to_progressive
from pcr_exp.records.prepare import check_records, prepare_records
from pcr_exp.records.reader import RecordSet

SHARED = Path(__file__).parents[2].parent / "shared/data/pcr_release_sample"


def config_of(root: Path, **given: object) -> PcrReleaseConfig:
    settings = {"name": "release", "label": "class", "images_per_record": 3, "tune_fraction": 0.0, **given}
    return PcrReleaseConfig(root=str(root), **settings)  # type: ignore[arg-type]


def pieces_of(kind: str) -> list[bytes]:
    """Split an image as the release does: one piece per scan, however many there are."""
    return split_scans(to_progressive(KINDS[kind]))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    root = tmp_path / "release"
    kinds = list(KINDS)
    write_release(
        root / "train",
        [
            ([0, 1, 2], [pieces_of(kind) for kind in kinds[:3]]),
            ([2, 1, 0, 1], [pieces_of(kind) for kind in kinds[3:7]]),  # with six, ten and eighteen scans
        ],
    )
    write_release(root / "val", [([2, 0], [pieces_of("420"), pieces_of("tiny")])])
    return root


def stored(folder: Path, split: str, group: int, encoding: str = "pcr") -> dict[str, tuple[bytes, int]]:
    """Return the JPEG file and the label of each image at a group, by ID."""
    records = RecordSet(FolderStorage(folder), f"{split}/{encoding}")
    found = {}
    for number in range(len(records.index.records)):
        prefix = records.read_prefix(number, group)
        for i, id_ in enumerate(prefix.ids):
            found[id_] = (bytes(prefix.encoded(i)), int(prefix.labels["class"][i]))
    return found


def check_every_group(folder: Path, release: Path) -> int:
    """Compare with the release's own files, and return the number of images."""
    num_images = 0
    for split in ("train", "val"):
        source = release / split if (release / split).is_dir() else release
        originals = stored(folder, split, 1, "baseline")
        num_images += len(originals)
        for group in range(1, 11):
            for id_, (jpeg, label) in stored(folder, split, group).items():
                name, place = id_.removesuffix(".jpg").split("/")[-2:]
                record = read_record(source / name, read_index(source / "PCR.db")[name])
                image = ReleaseImage(record, int(place))
                pieces = image.pieces(image.read_bytes())
                assert jpeg == join_pieces(pieces[: group if group < 10 else None]), (id_, group)
                assert label == record.labels[int(place)]
                assert originals[id_] == (image.read_bytes(), label)
    return num_images


def test_the_same_bytes_at_every_group(release: Path, tmp_path: Path) -> None:
    config, records = config_of(release), RecordsConfig(root=str(tmp_path / "records"))
    before = {path: path.read_bytes() for path in release.rglob("*") if path.is_file()}
    folder = prepare_records(config, records)
    assert check_every_group(folder, release) == 9
    assert {path: path.read_bytes() for path in release.rglob("*") if path.is_file()} == before
    assert prepare_records(config, records) == folder
    assert check_records(config, records).startswith("9 images are unchanged since")


def test_a_release_in_one_folder_is_divided_by_its_images(tmp_path: Path) -> None:
    pieces = [pieces_of("tiny")] * 40
    write_release(tmp_path, [([0, 1] * 20, pieces)])
    dataset = read(config_of(tmp_path, val_fraction=0.3))
    assert len(dataset.train) + len(dataset.val) == 40 and 5 <= len(dataset.val) <= 20
    assert dataset.classes == {"class": ["0", "1"]}
    assert dataset.train[0].id.startswith("PCR_0.pcr/")


def test_classes_are_named_by_a_file(release: Path) -> None:
    names = release / "classes.txt"
    names.write_text("cat\ndog\nowl\nelk\n")
    assert read(config_of(release)).classes == {"class": ["cat", "dog", "owl", "elk"]}
    for wrong in ("cat\ndog\n", "cat\ncat\ndog\n"):
        names.write_text(wrong)
        with pytest.raises(
            DatasetError, match=r"the records have labels up to 2\. Wanted one distinct name per line"
        ):
            read(config_of(release))


def test_what_lies_beside_is_said(release: Path) -> None:
    (release / "train/PCR_7.pcr").touch()
    (remark,) = [r for r in read(config_of(release)).seen.all_remarks() if "left out" in r]
    assert remark.startswith("1 record is not in ") and remark.endswith("left out: PCR_7.pcr.")


def test_folders_that_are_no_release(tmp_path: Path) -> None:
    root = tmp_path / "release"
    write_index(root / "train", {"PCR_0.pcr": [1, 2]})
    with pytest.raises(DatasetError, match=r"has train/ but no val/"):
        read(config_of(root))
    (root / "val").mkdir()
    with pytest.raises(DatasetError, match=r"PCR_0\.pcr is missing\..* lists it"):
        read(config_of(root))
    other = tmp_path / "tensorflow"
    other.mkdir()
    with pytest.raises(DatasetError, match=r"PCR\.db is missing"):
        read(config_of(other))
    (other / "PCR_index.pb").touch()
    with pytest.raises(DatasetError, match="the release's TensorFlow variant, which is not supported"):
        read(config_of(other))


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([to_jpeg(PHOTO)[:-2]], "it is not progressive and has 1 scans for 3 components; wanted 10 or 14"),
        ([*groups_of("420")[:9]], "it is progressive and has 9 scans for 3 components; wanted 10 or 14"),
        ([b"".join(groups_of("420"))], "its pieces do not end where its scans end"),
    ],
)
def test_an_image_that_is_not_in_default_scans_is_rejected_by_name(
    tmp_path: Path, pieces: list[bytes], reason: str
) -> None:
    write_release(tmp_path / "train", [([0, 1], [pieces_of("444"), pieces])])
    write_release(tmp_path / "val", [([0, 1], [pieces_of("422"), pieces_of("444")])])
    config = config_of(tmp_path)
    with pytest.raises(ImageError, match=reason):
        prepare_records(config, RecordsConfig(root=str(tmp_path / "records")))
    folder = prepare_records(config, RecordsConfig(root=str(tmp_path / "records"), on_error="skip"))
    assert list(stored(folder, "train", 1)) == ["train/PCR_0.pcr/00000.jpg"]
    assert "train/PCR_0.pcr/00001.jpg," in (folder / "train/rejected.csv").read_text()


def test_a_record_that_changes_is_noticed(release: Path, tmp_path: Path) -> None:
    config, records = config_of(release), RecordsConfig(root=str(tmp_path / "records"))
    folder = prepare_records(config, records)
    write = release / "val"
    (write / "PCR.db").unlink()
    write_release(write, [([2, 0], [pieces_of("444"), pieces_of("tiny")])])
    with pytest.raises(Exception, match=r"1 replaced: val/PCR_0\.pcr/00000\.jpg"):
        prepare_records(config, records)
    table = gzip.decompress((folder / "source_images.csv.gz").read_bytes()).decode()
    assert f"val,val/PCR_0.pcr/00001.jpg,class=0,{len(to_progressive(KINDS['tiny']))}," in table


@pytest.mark.slow
def test_the_release_s_own_sample(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"../shared/data is not here: wanted {SHARED}")
    config = config_of(SHARED, images_per_record=64)
    folder = prepare_records(config, RecordsConfig(root=str(tmp_path / "records")))
    assert check_every_group(folder, SHARED) == 128
    for jpeg, _ in stored(folder, "val", 10).values():
        assert simplejpeg.is_jpeg(jpeg) and simplejpeg.decode_jpeg_header(jpeg)[0] > 0
