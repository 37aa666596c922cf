"""Images of a page of `explore`, against their records and the loader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from numbered_records import encode_numbered, square_crops

from pcr_exp.config.crops import CropSettings
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.decode import ProgressiveJpeg
from pcr_exp.loading.fixed_sample import FixedSample
from pcr_exp.loading.transform import eval_transform
from pcr_exp.measuring.explore import (
    Explored,
    StoredImages,
    choose_by_class,
    explore_images,
    images_in_files,
    images_in_records,
)
from pcr_exp.measuring.quality import measure_quality
from pcr_exp.records.encode import encode_split
from pcr_exp.records.inspect import Found, find_records
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import extract_image, find_image
from pcr_exp.storage.local import LocalStorage

GROUPS = (1, 2, 5, 10)
CROPS = CropSettings(train_px=64, eval_px=48)


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """Twelve images of 96 px in three records; the label `side` cycles through its values."""
    jpegs = square_crops(((10 * i, 8 * i) for i in range(12)), 96, 90)
    return encode_numbered(jpegs, tmp_path, images_per_record=4, side=["left", "right", "none"])


def found_in(split: Path) -> list[Found]:
    return [one for one in find_records(str(split)) if one.records.index.encoding == "pcr"]


def damage_header(record: Path) -> None:
    data = bytearray(record.read_bytes())
    data[40] ^= 255
    record.write_bytes(data)


def looked_at(images: StoredImages, ids: list[str], **changed: object) -> Explored:
    settings = {"crops": CROPS, "max_bytes": 10**8, "num_threads": 2}
    return explore_images(images, ids, GROUPS, **(settings | changed))  # type: ignore[arg-type]


def test_pieces_are_the_records_own_and_numbers_those_of_quality(split: Path) -> None:
    found = found_in(split)
    images = images_in_records(found, "side")
    seen = looked_at(images, list(images.labels)).seen
    records = RecordSet(LocalStorage(split), "pcr")
    quality = measure_quality(records, GROUPS, 12).set_index(["id", "group"])
    assert [image.id for image in seen] == list(images.labels)
    for image in seen:
        _, record, i = find_image([(records, range(3))], image.id)
        for place, group in enumerate(GROUPS):
            prefix = b"".join(image.pieces[: place + 1])
            assert prefix == extract_image(records, record, i, group, pieces_only=True)
            row = quality.loc[(image.id, group)]
            assert len(prefix) == row["bytes"]
            assert image.ms_ssim[place] == pytest.approx(row["ms_ssim"], abs=1e-6)
        assert (image.width_px, image.height_px) == (96, 96)


@pytest.mark.parametrize("mode", ["scaled", "libjpeg"])
def test_crops_are_what_the_loader_makes(split: Path, mode: str) -> None:
    images = images_in_records(found_in(split), "side")
    records = RecordSet(LocalStorage(split), "pcr")
    sample = FixedSample(records, 12, decode=records.open_decoder(mode))
    ids = [sample.id(position) for position in range(12)]
    by_id = {image.id: image for image in looked_at(images, ids, crops=replace(CROPS, decode=mode)).seen}
    for place, group in enumerate(GROUPS):
        (batch,) = sample.batches(group, eval_transform(CROPS), label="side", batch_size=12)
        for name, wanted in zip(ids, batch.images.numpy(), strict=True):
            crop = cv2.imdecode(np.frombuffer(by_id[name].crops[place], np.uint8), cv2.IMREAD_COLOR)[
                ..., ::-1
            ]
            assert np.abs(crop.astype(int) - wanted).mean() < 4, "WebP is lossy, and no more is lost"
    differ = [image for image in by_id.values() if image.crops[0] != image.crops[-1]]
    assert len(differ) == 12


def test_files_are_seen_as_their_records_would_be(split: Path) -> None:
    stored = images_in_records(found_in(split), "side")
    samples = [Sample(name, split.parent / name, {"side": label}) for name, label in stored.labels.items()]
    files = images_in_files(samples, "side", ["left", "right", "none"], ProgressiveJpeg(), 10**6)
    names = list(stored.labels)[:3]
    for one, other in zip(looked_at(stored, names).seen, looked_at(files, names).seen, strict=True):
        assert one._replace(decode_s=[]) == other._replace(decode_s=[])


def test_classes_come_in_turn(split: Path) -> None:
    images = images_in_records(found_in(split), "side")
    chosen = choose_by_class(images, 8)
    assert [images.labels[name] for name in chosen] == [0, 2] * 4, "four of each of two, not three of three"
    assert len(choose_by_class(images, 8, per_class=8)) == 8, "one class has four alone"
    counts = np.bincount([images.labels[name] for name in choose_by_class(images, 12)], minlength=3)
    assert counts.tolist() == [4, 4, 4]
    named = choose_by_class(images, 5, ["right", "none"])
    assert [images.labels[name] for name in named] == [1, 2, 1, 2, 1]
    few = {images.labels[name] for name in choose_by_class(images, 4)}
    assert len(few) == 1, "four images of one class rather than one of each"
    with pytest.raises(
        RecordError, match=r"class 'up': none of the images that were read.*left, right, none"
    ):
        choose_by_class(images, 5, ["up"])


def test_images_that_are_wanted_are_found_however_late_they_lie(split: Path) -> None:
    found = found_in(split)
    every = list(images_in_records(found, "side").labels)
    assert list(images_in_records(found, "side", at_least=1).labels) == every[:4]
    images = images_in_records(found, "side", wanted=[every[-1]], at_least=1)
    assert len(images.read(every[-1])) == 10
    assert len(images_in_records(found, "side", wanted=["not there"], at_least=1).labels) == 12


def test_a_damaged_image_is_named_and_left_out(split: Path) -> None:
    found = found_in(split)
    names = list(images_in_records(found, "side").labels)
    path = split / "pcr" / found[0].records.index.records[0].file
    data = bytearray(path.read_bytes())
    data[-5] ^= 255  # in the last piece of the record's last image
    path.write_bytes(data)
    explored = looked_at(images_in_records(found_in(split), "side"), names)
    assert list(explored.left_out) == [names[3]] and "checksum" in explored.left_out[names[3]]
    assert [image.id for image in explored.seen] == [name for name in names if name != names[3]]
    with pytest.raises(RecordError, match=r"none of 1 images can be shown: .*checksum"):
        looked_at(images_in_records(found_in(split), "side"), [names[3]])


def test_a_damaged_record_is_named_and_its_images_are_not_there(split: Path) -> None:
    first, *others = [split / "pcr" / entry.file for entry in found_in(split)[0].records.index.records]
    damage_header(first)
    images = images_in_records(found_in(split), "side")
    assert len(images.labels) == 8 and list(images.unread) == [f"pcr/{first.name}"]
    for path in others:
        damage_header(path)
    with pytest.raises(RecordError, match=r"no record can be read. The first: "):
        images_in_records(found_in(split), "side")


def test_labels_and_images_that_are_not_there_are_refused(split: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RecordError, match=r"label 'colour': astronaut has no such label; wanted one of number, side"
    ):
        images_in_records(found_in(split), "colour")
    empty = tmp_path / "empty"
    settings = {"dataset": "pets", "split": "tune", "images_per_record": 4, "on_error": "fail"}
    encode_split([], {"side": ["left"]}, empty, num_workers=1, progress=lambda *_: None, **settings)  # type: ignore[arg-type]
    with pytest.raises(RecordError, match=r"pets/tune holds no images, so there is nothing to show"):
        images_in_records(found_in(empty), "side")


def test_a_page_that_is_full_says_how_many_were_wanted_too(split: Path) -> None:
    images = images_in_records(found_in(split), "side")
    names = list(images.labels)
    room = sum(image.page_bytes for image in looked_at(images, names[:3]).seen)
    explored = looked_at(images, names, max_bytes=room)
    assert [image.id for image in explored.seen] == names[:3] and explored.num_too_many == 9
    with pytest.raises(
        RecordError, match=r"none of 12 images can be shown: the first one alone needs more than 0\.001 MB"
    ):
        looked_at(images, names, max_bytes=1000)


def test_images_smaller_than_a_window_have_no_similarity_and_are_shown(tmp_path: Path) -> None:
    split = encode_numbered(square_crops([(0, 0)], 8, 90), tmp_path, images_per_record=4)
    (image,) = looked_at(images_in_records(found_in(split), "number"), ["000.jpg"]).seen
    assert image.ms_ssim == [None] * 4 and image.crop_ms_ssim[-1] == 1.0


def test_what_a_browser_cannot_decode_is_refused(split: Path) -> None:
    images = images_in_records(found_in(split), "side")
    other = replace(images, read=lambda _name: [b"RIFF"] * 10)
    with pytest.raises(RecordError, match=r"a browser cannot show images of the codec"):
        looked_at(other, list(images.labels)[:1])


def test_errors_of_files_are_reasons_too(split: Path) -> None:
    images = images_in_records(found_in(split), "side")
    names = list(images.labels)[:2]

    def read(name: str) -> list[bytes]:
        if name == names[0]:
            raise ImageError("arithmetic coding")
        return images.read(name)

    assert looked_at(replace(images, read=read), names).left_out == {names[0]: "arithmetic coding"}


def test_rates_are_of_one_core(split: Path) -> None:
    images = images_in_records(found_in(split), "side")
    explored = looked_at(images, list(images.labels))
    seen = [image._replace(decode_s=[0.001, 0.002, 0.004, 0.008]) for image in explored.seen]
    assert Explored(seen, {}, 0).decode_images_per_s() == pytest.approx([1000, 500, 250, 125])
    assert min(explored.decode_images_per_s()) > 0
