"""The page of `explore`: its content, that it makes no requests, and that its numbers match the tables."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tolerance_rows import N, measured

from pcr_exp.analysis.explore import (
    EpochFacts,
    Mistakes,
    Shown,
    check_fits,
    explore_page,
    in_turn,
    mistakes_of,
    presets,
    storage_of,
    wanted_mistakes,
)
from pcr_exp.analysis.tolerance import Measured
from pcr_exp.analysis.tolerance_page import ROWS_FILE, load_tolerance, write_tolerance
from pcr_exp.config.crops import CropSettings
from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.explore import Explored, SeenImage

pytestmark = pytest.mark.usefixtures("light_figures")

GROUPS = [1, 5, 10]
HOSTILE = "</script><script>alert(1)</script>&<b>"


def seen(name: str, label: int = 0) -> SeenImage:
    pieces = [f"{name} piece {group}".encode() for group in GROUPS]
    return SeenImage(name, label, 8, 6, pieces, [0.5, 0.9, 1.0], [b"1", b"5", b"10"], [None] * 3, [1e-3] * 3)


def shown(images: list[SeenImage], **changed: Any) -> Shown:
    settings: dict[str, Any] = {
        "title": "pets/train",
        "groups": GROUPS,
        "classes": ["cat", "dog"],
        "explored": Explored(images, {}, 0),
        "gallery": [image.id for image in images],
        "crops": CropSettings(train_px=64, eval_px=64),
        "epoch": EpochFacts(num_images=1000, images_per_record=10, image_bytes=[1000, 4000, 9000]),
    }
    return Shown(**(settings | changed))


def data_of(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return dict(json.loads(found))


def task(wrong: dict[tuple[int, int], int], **changed: Any) -> Measured:
    """Return `measured(wrong)` with ids, and with margins that fall over the first 50 images."""
    rows = measured(wrong)
    margins = np.ones((2, 3, N), dtype=np.float32)
    margins[:, :, :50] = -np.arange(50)
    predictions = replace(rows.predictions, margins=margins)
    return replace(rows, predictions=predictions, ids=[f"{i}.jpg" for i in range(N)], **changed)


def test_each_piece_is_there_once_and_its_sizes_add_up() -> None:
    data = data_of(explore_page(shown([seen("a"), seen("b", 1), seen("c", 1)])))
    for image, name in zip(data["images"], "abc", strict=True):
        pieces = [base64.b64decode(piece) for piece in image["pieces"]]
        assert pieces == [f"{name} piece {group}".encode() for group in GROUPS]
        assert image["bytes"] == np.cumsum([len(piece) for piece in pieces]).tolist()
        assert image["msSsim"] == [0.5, 0.9, 1.0] and image["cropMsSsim"] == [None] * 3
    assert data["classes"] == [{"name": "cat", "images": [0]}, {"name": "dog", "images": [1, 2]}]
    assert data["epoch"]["decodeImagesPerS"] == pytest.approx([1000] * 3) and data["task"] is None


def test_names_from_files_are_text_and_no_code() -> None:
    left_out = {f"{HOSTILE}.jpg": HOSTILE}
    hostile = shown([seen(HOSTILE)], title=HOSTILE, classes=[HOSTILE], unread=left_out)
    page = explore_page(hostile)
    assert "<script>alert" not in page and page.count("</script>") == 2
    assert data_of(page)["images"][0]["id"] == HOSTILE


def test_nobody_can_be_asked_for_anything() -> None:
    page = explore_page(shown([seen("a")]))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src blob: data:;")
    assert f"script-src 'sha256-{digest}'" in policy
    assert set(re.findall(r"https?://[^\s\"']*", page)) <= {"http://www.w3.org/2000/svg"}


def test_what_did_not_fit_or_could_not_be_read_is_said() -> None:
    explored = Explored([seen("a"), seen("b")], {"c.jpg": "its checksum is wrong"}, 7)
    page = explore_page(shown([], explored=explored, gallery=["a"], unread={"pcr/1.pcr": "cut short"}))
    assert "2 images fit in a page of 15 MB; 7 more were asked for." in page
    assert "Left out: 2" in page and "its checksum is wrong" in page and "cut short" in page
    assert "fit in a page" not in explore_page(shown([seen("a")]))
    assert [one["images"] for one in data_of(page)["classes"]] == [[0]], "b is shown as a mistake alone"


def test_a_page_without_a_task_says_how_to_measure_one() -> None:
    assert "Nothing was measured of a task" in explore_page(shown([seen("a")]))
    assert "Nothing was measured" not in explore_page(shown([seen("a")], task=task({(0, 2): 200})))


def test_numbers_of_the_task_are_those_of_its_table(tmp_path: Path) -> None:
    write_tolerance(tmp_path, task({(0, 2): 200, (0, 0): 9, (1, 2): 3}), {})
    data = data_of(explore_page(shown([seen("0.jpg")], task=load_tolerance(tmp_path))))["task"]
    table = pd.read_csv(tmp_path / "answers.csv")
    for use in data["uses"]:
        rows = table[table["deployment"] == use["name"]].sort_values("train_group")
        assert [row["verdict"] for row in use["rows"]] == rows["verdict"].tolist()
        for column in ("train_group", "image_bytes", "score", "score_low", "loss", "loss_low", "loss_high"):
            of_file = rows[column.replace("score", "top1")].tolist()
            assert [row[column] for row in use["rows"]] == pytest.approx(of_file, rel=1e-12)
    text = (tmp_path / "tolerance.md").read_text()
    page = explore_page(shown([seen("0.jpg")], task=load_tolerance(tmp_path)))
    assert "**group 5** is the smallest" in text and "<strong>Group 5</strong> is the smallest" in page


def test_mistakes_are_the_worst_first_and_those_won_are_counted() -> None:
    rows = task({(0, 2): 5, (0, 0): 4, (2, 2): 2})
    assert mistakes_of(rows, "full", 1) == Mistakes([4, 3, 2], [1, 0, 1], 0)
    assert mistakes_of(rows, "same", 1) == Mistakes([3, 2], [0, 1], 0)
    assert mistakes_of(rows, "same", 5) == Mistakes([], [], 2)
    assert mistakes_of(rows, "full", 10) == Mistakes([], [], 0)
    assert wanted_mistakes(rows) == ["4.jpg", "3.jpg", "2.jpg"]


def test_numbers_and_sets_have_scores_and_no_mistakes() -> None:
    rows = measured({})
    numbers = np.linspace(0, 1, N, dtype=np.float32)
    outputs = np.broadcast_to(numbers, (len(rows.facts.groups),) * 2 + (N,))
    predictions = replace(rows.predictions, outputs=outputs, margins=None)
    facts = replace(rows.facts, headline="r2", majority_share=None)
    ids = [f"{i}.jpg" for i in range(N)]
    rows = replace(rows, facts=facts, predictions=predictions, labels=numbers, ids=ids)
    data = data_of(explore_page(shown([seen("0.jpg")], task=rows)))["task"]
    assert [use["mistakes"] for use in data["uses"]] == [[], []] and wanted_mistakes(rows) == []
    assert data["words"] == "R2" and data["whole"] == 1 and data["guessed"] == 0


def test_mistakes_of_the_page_are_images_that_it_has() -> None:
    rows = task({(0, 2): 5})
    data = data_of(explore_page(shown([seen("2.jpg"), seen("4.jpg")], gallery=["2.jpg"], task=rows)))["task"]
    found = data["uses"][0]["mistakes"][0]
    assert (found["numLost"], found["numGained"]) == (5, 0)
    assert found["shown"] == [
        {"image": 1, "said": "dog", "right": "cat"},
        {"image": 0, "said": "dog", "right": "cat"},
    ]


def test_ids_and_margins_come_back_from_disk_and_are_small(tmp_path: Path) -> None:
    rows = task({(0, 2): 5})
    write_tolerance(tmp_path, rows, {})
    kept = load_tolerance(tmp_path)
    assert kept.ids == rows.ids and mistakes_of(kept, "full", 1) == mistakes_of(rows, "full", 1)
    assert (tmp_path / ROWS_FILE).stat().st_size < 20_000


def test_measurements_of_before_are_shown_without_their_images(tmp_path: Path) -> None:
    write_tolerance(tmp_path, measured({(0, 2): 5}), {})
    kept = load_tolerance(tmp_path)
    assert kept.ids is None and kept.predictions.margins is None and wanted_mistakes(kept) == []
    data = data_of(explore_page(shown([seen("0.jpg")], task=kept)))["task"]
    assert not data["hasIds"] and data["uses"][0]["mistakes"][0]["numLost"] == 5


def test_every_list_has_its_turn() -> None:
    assert in_turn(["a", "b", "c"], ["d", "a"], []) == ["a", "d", "b", "c"]


def test_sliders_begin_at_a_storage_of_the_configuration() -> None:
    assert {"hdd", "wan_100mbit"} <= presets().keys() and not {"unlimited", "halving"} & presets().keys()
    start = data_of(explore_page(shown([seen("a")], storage=storage_of("hdd"))))["start"]
    assert (start["bandwidthMibPerS"], start["seekMs"], start["requestsPerS"]) == (150, 8, None)
    for storage in (None, StorageConfig(name="unlimited")):
        assert data_of(explore_page(shown([seen("a")], storage=storage)))["start"]["bandwidthMibPerS"] == 100
    with pytest.raises(ConfigError, match=r"--storage tape: wanted one of .*hdd"):
        storage_of("tape")


def test_a_measurement_at_other_groups_is_refused() -> None:
    check_fits(measured({}).facts, 10)
    with pytest.raises(ConfigError, match=r"scan groups up to 10 .*, but the records have 6"):
        check_fits(measured({}).facts, 6)
