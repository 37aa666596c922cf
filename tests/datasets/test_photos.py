from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pcr_exp.datasets import photos
from pcr_exp.datasets.photo_crops import View, defocus, detail, draw_image, draw_view, encode_jpeg, render
from pcr_exp.datasets.photos import CLASSES, GAP_PX, SOURCE_FILES, load_photo, read, split_region
from pcr_exp.errors import DatasetError

GREY = {"brick", "grass"}


@pytest.fixture
def small(make_config):
    return make_config("photos", num_train=32, num_val=16, size_px=64)


def digest(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_both_labels_and_layout(small, tmp_path: Path):
    dataset = read(small)
    assert dataset.classes == {"photo": list(SOURCE_FILES), "focus": ["blurred", "in_focus"]}
    (folder,) = tmp_path.iterdir()
    for split in ("train", "val"):
        for sample in getattr(dataset, split):
            photo = dataset.classes["photo"][sample.labels["photo"]]
            focus = dataset.classes["focus"][sample.labels["focus"]]
            assert sample.path == tmp_path / folder.name / sample.id
            assert sample.id.startswith(f"{split}/{photo}/{focus}/")


@pytest.mark.parametrize("num", [5, 16, 32, 61])
def test_balanced(make_config, num: int):
    for split in ("train", "val"):
        pictures = photos.plan(make_config("photos", num_train=num, num_val=num))
        cells = Counter((p.photo, p.focus) for p in pictures if p.split == split)
        assert sum(cells.values()) == num
        assert max(cells.values()) - min(cells[photo, focus] for photo in range(8) for focus in range(2)) <= 1


def test_pictures_are_baseline_jpegs_of_the_size_asked_for(small):
    for sample in read(small).train:
        with Image.open(sample.path) as image:
            assert image.size == (64, 64)
            grey = CLASSES["photo"][sample.labels["photo"]] in GREY
            assert image.mode == ("L" if grey else "RGB")
            assert "progressive" not in image.info


def test_same_bytes_on_rerun_and_at_any_number_of_threads(small, tmp_path: Path, monkeypatch):
    read(small)
    before = digest(tmp_path)
    shutil.rmtree(next(tmp_path.iterdir()))
    monkeypatch.setattr(photos, "NUM_THREADS", 1)
    read(small)
    assert digest(tmp_path) == before
    assert len(set(before.values())) == len(before), "two files are the same picture"


def test_existing_pictures_are_reused(small, tmp_path: Path):
    first = read(small)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert read(small) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times


def test_other_settings_lie_apart(small, make_config, tmp_path: Path):
    one = read(small)
    other = read(make_config("photos", num_train=32, num_val=16, size_px=64, seed=1))
    assert len(list(tmp_path.iterdir())) == 2
    assert one.train[0].path.read_bytes() != other.train[0].path.read_bytes()


def test_more_pictures_leave_the_others_in_their_splits(make_config):
    few, many = (
        read(make_config("photos", num_train=num, num_val=4, size_px=64, tune_fraction=0.3))
        for num in (30, 31)
    )
    for split in ("train", "tune"):
        old = {sample.id for sample in few.splits[split]}
        assert old
        assert [s.id for s in many.splits[split] if s.id in old] == [s.id for s in few.splits[split]]


def test_quality_changes_bytes_not_pictures(make_config):
    low, high = (
        read(make_config("photos", num_train=16, num_val=1, size_px=64, quality=quality))
        for quality in (30, 95)
    )
    for one, other in zip(low.train, high.train, strict=True):
        assert one.labels == other.labels
        assert one.path.stat().st_size < other.path.stat().st_size


def test_nothing_is_left_of_a_making_that_failed(small, tmp_path: Path, monkeypatch):
    def fail(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(photos, "draw_jpeg", fail)
    with pytest.raises(KeyboardInterrupt):
        read(small)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_making_the_same_pictures(small, tmp_path: Path, monkeypatch):
    """If another process finishes its folder while ours is being made, theirs is used."""
    theirs = tmp_path / "theirs"
    read(small)
    (folder,) = tmp_path.iterdir()
    folder.rename(theirs)
    draw_all = photos._draw_all

    def draw_and_lose(whole: Path, config) -> None:
        draw_all(whole, config)
        theirs.rename(folder)

    monkeypatch.setattr(photos, "_draw_all", draw_and_lose)
    assert len(read(small).train) == 32
    assert list(tmp_path.iterdir()) == [folder]


def test_something_else_in_the_way(small, tmp_path: Path, monkeypatch):
    """An incomplete folder of the same name that appears while ours is being made is an error."""
    folder = tmp_path / f"photos-{photos.key_of(photos._settings(small))}"

    def draw_and_lose(whole: Path, _: object) -> None:
        whole.mkdir()
        folder.mkdir()
        (folder / "notes.txt").touch()

    monkeypatch.setattr(photos, "_draw_all", draw_and_lose)
    with pytest.raises(DatasetError, match="the images cannot be made in"):
        read(small)


def test_picture_deleted(small):
    read(small).train[0].path.unlink()
    with pytest.raises(DatasetError, match=r"lacks .*\.jpg \(1 such files\)\. Remove"):
        read(small)


def test_stamp_of_other_settings(small, tmp_path: Path):
    read(small)
    (stamp,) = tmp_path.glob("*/stamp.json")
    stamp.write_text(json.dumps({"version": 0}))
    with pytest.raises(DatasetError, match=r"stamp\.json says .* wanted .*Remove"):
        read(small)


def test_stamp_missing(small, tmp_path: Path):
    read(small)
    next(tmp_path.glob("*/stamp.json")).unlink()
    with pytest.raises(DatasetError, match=r"stamp\.json cannot be read .*Remove"):
        read(small)


def test_root_that_cannot_be_made(make_config, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=r"the images cannot be made in .*file"):
        read(make_config("photos", root=str(tmp_path / "file")))


def test_scikit_image_without_the_photograph(monkeypatch):
    monkeypatch.setitem(photos.SOURCE_FILES, "astronaut", "cosmonaut.png")
    with pytest.raises(DatasetError, match=r"scikit-image ships no cosmonaut\.png here"):
        load_photo("astronaut")


@pytest.mark.parametrize("name", SOURCE_FILES)
def test_regions_are_apart(name: str):
    photo = load_photo(name)
    columns = np.broadcast_to(np.arange(photo.shape[1]), photo.shape[:2])
    train, val = (split_region(columns, split) for split in ("train", "val"))
    assert val.min() - train.max() - 1 == GAP_PX
    assert (train.min(), val.max()) == (0, photo.shape[1] - 1)


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(1, 3),
    st.floats(-math.pi, math.pi),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_no_view_sees_the_other_split(x: float, y: float, scale: float, angle_rad: float, flip: bool):
    """Views of a photograph with a dark train part and a bright val part are purely dark or bright."""
    photo = np.full((200, 300), 255, np.uint8)
    split_region(photo, "train")[:] = 0
    for split, level in (("train", 0), ("val", 255)):
        region = split_region(photo, split)
        view = View(x * region.shape[1], y * region.shape[0], scale, angle_rad, flip, gain=1.0, gamma=1.0)
        assert (render(region, view, 64) == level).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_views_stay_inside_large_regions_and_never_enlarge(seed: int):
    view = draw_view(np.random.default_rng(seed), 800, 600, 256)
    reach = 128 * view.scale * (math.cos(view.angle_rad) + math.sin(abs(view.angle_rad)))
    assert view.scale >= 1
    assert reach - 1e-6 <= view.center_x <= 600 - reach + 1e-6
    assert reach - 1e-6 <= view.center_y <= 800 - reach + 1e-6


def test_render_places_flips_and_turns():
    region = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    region = cv2.GaussianBlur(region, (0, 0), 3)
    same = View(60 - 0.5, 45 - 0.5, 1.0, 0.0, False, 1.0, 1.0)
    crop = region[13:77, 28:92].astype(int)
    assert abs(render(region, same, 64) - crop).max() <= 3
    flipped = View(60 - 0.5, 45 - 0.5, 1.0, 0.0, True, 1.0, 1.0)
    assert abs(render(region, flipped, 64) - crop[:, ::-1]).max() <= 3
    turned = View(60 - 0.5, 45 - 0.5, 1.0, math.pi / 2, False, 1.0, 1.0)
    assert abs(render(region, turned, 64) - np.rot90(crop)).max() <= 3


def test_light_changes_with_gain_and_gamma():
    region = np.full((64, 64), 100, np.uint8)
    dark, bright = (render(region, View(32, 32, 1.0, 0.0, False, gain, 1.0), 32) for gain in (0.9, 1.1))
    assert (dark == 90).all()
    assert (bright == 110).all()
    assert (render(region, View(32, 32, 1.0, 0.0, False, 1.0, 0.9), 32) > 100).all()


def test_picture_without_detail_is_still_drawn():
    picture = draw_image(np.random.default_rng(0), np.full((100, 100), 7, np.uint8), 64)
    assert picture.shape == (64, 64)
    assert detail(picture) == 0


@pytest.mark.parametrize("name", SOURCE_FILES)
def test_focus_is_decidable_within_each_photograph(name: str):
    """High frequencies separate sharp from blurred after encoding, by area under the ROC curve per split."""
    photo = load_photo(name)
    for split in ("train", "val"):
        rng = np.random.default_rng(0)
        pictures = [draw_image(rng, split_region(photo, split), 256) for _ in range(24)]
        sharp = [detail(decoded(picture)) for picture in pictures[::2]]
        blurred = [detail(decoded(defocus(rng, picture))) for picture in pictures[1::2]]
        wins = np.greater.outer(sharp, blurred).mean()
        assert wins > 0.85, f"{name} {split}: {wins:.2f}"


def decoded(picture: np.ndarray) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(encode_jpeg(picture, 90), np.uint8), cv2.IMREAD_GRAYSCALE)
