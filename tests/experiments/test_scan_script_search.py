"""Measurements of scan scripts, on a few small images instead of native ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skimage.data
from jpeg_photos import needs_jpegtran
from PIL import Image
from records_pictures import to_jpeg
from tolerance_images import SIZE_PX, write_samples

from experiments.pcr import scan_scripts as family
from experiments.pcr import scan_scripts as program
from experiments.pcr.scan_script_costs import CutImages, Similarities, cpu_ms
from experiments.pcr.scan_scripts import draw_folder, tables
from pcr_exp.config.crops import CropSettings
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.measuring.tolerance.images import ImageFiles

pytestmark = needs_jpegtran
PHOTOS = [Image.fromarray(photo()[:180, 100:290]) for photo in (skimage.data.astronaut, skimage.data.coffee)]


def test_every_searched_script_is_one_and_none_is_there_twice() -> None:
    found = family.searched_scripts()
    assert len(found) == len(set(found.values())) > 40
    assert {script.scans[0].low for script in found.values()} == {0}
    assert "Y 1-9, C, Y 10-63 to bit 1" in found
    assert found["Y 1-9, C, Y 10-63 to bit 1"].scans[-1][1:] == (10, 63, 1, 0)
    assert {"default", "spectral", "two_step", "refined_luma"} <= family.named_scripts().keys()


def test_the_front_is_what_nothing_beats() -> None:
    costs = np.array([[1, 3, 1], [2, 2, 1], [2, 3, 1], [1, 3, 1], [0, np.nan, 2]])
    assert family.is_on_front(costs).tolist() == [True, True, False, True, True]


def test_cases_take_turns_at_every_image() -> None:
    seen: list[tuple[str, int]] = []
    cases = {name: (lambda image, name=name: seen.append((name, image))) for name in "abc"}
    spent = cpu_ms(cases, num_images=2, turns=2)
    assert {name: len(values) for name, values in spent.items()} == {"a": 2, "b": 2, "c": 2}
    one, other = (
        [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("c", 1), ("a", 1)],
        [("b", 0), ("c", 0), ("a", 0), ("c", 1), ("a", 1), ("b", 1)],
    )
    assert seen == [*one, *one, *other], "the first round warms"


@pytest.mark.program
def test_the_program_s_tables_and_figure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    light_figures: None,  # noqa: ARG001
) -> None:
    names = ("default", "spectral")
    named = {name: script for name, script in family.named_scripts().items() if name in names}
    searched = dict(list(family.searched_scripts().items())[:2])
    monkeypatch.setattr(program, "named_scripts", lambda: named)
    monkeypatch.setattr(program, "searched_scripts", lambda: searched)
    for i, image in enumerate(PHOTOS):
        image.save(tmp_path / f"{i}.JPEG", quality=95)
    out = tmp_path / "out"
    given = ["--images", tmp_path, "--out", out, "--repeats", 2]
    counts = ["--num-images", 2, "--num-searched", 2, "--num-compared", 1]
    program.main(list(map(str, [*given, *counts])))
    search = pd.read_csv(out / "search.csv")
    assert len(search) == 4 and search["on_front"].any()
    default = search.set_index("script").loc["default"]
    assert default["middle_group"] <= 5, "group 5 reaches itself"
    assert (search["full_decode_low"] <= search["full_decode"]).all()
    groups = pd.read_csv(out / "groups.csv")
    last = groups[groups["script"] == "default"].groupby("group").first()
    assert last.loc[10, "ms_ssim"] == 1 and last["bytes_share"].is_monotonic_increasing
    crops = pd.read_csv(out / "crops.csv")
    assert set(crops["read"]) == {"pillow", "baseline", *names}
    assert (crops[crops["read"] == "pillow"]["of_pillow"] == 1).all()
    assert json.loads((out / "search.json").read_text())["num_searched"] == 2
    assert {path.suffix for path in draw_folder(out, tmp_path / "drawn")} == {".pdf", ".png", ".csv"}
    assert "| spectral | 6 |" in tables(out) and "libturbojpeg, in process" in tables(out)


def test_similarity_is_taken_once_of_what_is_held_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [to_jpeg(PHOTOS[0])]
    searched = family.searched_scripts()
    early, late = (CutImages(searched[name], files) for name in ("Y 1-5, C, Y 6-63", "Y 1-5, Y 6-63, C"))
    similar = Similarities(files)
    assert similar.mean(early, 2, 1) < similar.mean(early, 4, 1) < similar.mean(early, 5, 1) == 1
    monkeypatch.setattr(CutImages, "whole", None)  # no image is decoded from here on
    assert similar.mean(late, 2, 1) == similar.mean(early, 2, 1)


def test_tolerance_looks_at_the_groups_of_the_script(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, "fine", num_images=2)
    augment = AugmentConfig(eval_crop_fraction=1.0)
    crops = CropSettings(train_px=SIZE_PX, eval_px=SIZE_PX, augment=augment)
    spectral, default = (
        ImageFiles(samples, groups, crops, max_pixels=10**6, script=script)
        for groups, script in (((1, 3, 6), family.named_scripts()["spectral"]), ((1, 3, 10), DEFAULT))
    )
    views, usual = spectral.views(1), default.views(1)
    np.testing.assert_array_equal(views.crops[-1], usual.crops[-1])
    assert not np.array_equal(views.crops[1], usual.crops[1])
    assert (np.diff(views.group_bytes) > 0).all()
    assert spectral.key(1) != default.key(1)
