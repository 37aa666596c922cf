"""Committed tables of benchmarks follow from the committed rows."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.pcr import resize_filter
from experiments.results.study import TABLES_FILE, native_samples, save_rows, tables_page, to_markdown
from pcr_exp.errors import DatasetError

RESULTS = Path(__file__).parents[2] / "results"
NAMES = ("throttle", "records_speed", "throughput", "codec_speed", "antialias")
FEATURES = RESULTS / "antialias" / "features.csv.gz"
"""Rows per image, with a table of their own."""
RATIOS = RESULTS / "throttle" / "throttle.csv"
"""Rows of a figure, which `experiments.loaders.speed.pages` makes from the other tables there."""
ROWS = sorted(path for name in NAMES for path in (RESULTS / name).glob("*.csv") if path != RATIOS)


def test_there_are_results() -> None:
    assert {path.parent.name for path in ROWS} == {*NAMES}


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_page_shows_the_table_of_the_rows(path: Path) -> None:
    # The pinned pandas reads numbers to the last bit; before 3.1 it may not: 1.945 - 2e-16 is shown as 1.94.
    frame = pd.read_csv(path)
    assert frame["repeat"].nunique() >= 3
    pages = [path.parent / name for name in ("README.md", TABLES_FILE)]
    assert any(to_markdown(frame) in page.read_text() for page in pages if page.exists())


def test_a_page_of_tables_has_a_section_for_each_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("group,repeat,speed\n1,0,2.0\n1,1,4.0\n")
    page = tables_page(tmp_path, {"two": "Second", "one": "First"})
    assert page.index("## Second") < page.index("[two.csv](two.csv)") < page.index("## First")
    assert page.count("| 1 | 2 | 3 (2 to 4) |") == 2


def test_cases_measured_again_take_the_place_of_their_earlier_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "speed.csv"
    for speed in (1.0, 2.0):
        save_rows([{"group": 1, "repeat": i, "speed": speed + i} for i in range(3)], path)
    save_rows([{"group": 10, "repeat": i, "speed": 2000.4} for i in range(3)], path)
    assert to_markdown(pd.read_csv(path)).splitlines() == [
        "| group | n | speed |",
        "| ---: | ---: | ---: |",
        "| 1 | 3 | 3 (2 to 4) |",
        "| 10 | 3 | 2,000 |",
    ]


def test_cases_are_told_apart_by_the_digits_that_a_file_has(tmp_path: Path) -> None:
    for speed in (1, 2):
        save_rows([{"ratio": 110.5549712, "repeat": i, "speed": speed} for i in range(3)], tmp_path / "a.csv")
    assert pd.read_csv(tmp_path / "a.csv")["speed"].tolist() == [2, 2, 2]


def test_the_page_of_the_resize_filter_shows_the_table_of_its_rows() -> None:
    page = (RESULTS / "antialias" / "README.md").read_text()
    assert resize_filter.to_markdown(pd.read_csv(FEATURES)) in page


def test_differences_of_the_resize_filter_are_paired() -> None:
    """If both are right on the same images, the difference is zero and so is its interval."""
    alike = {"correct": [1, 0, 1, 0], "correct_unfiltered": [1, 0, 1, 0]}
    one_lost = {"correct": [1, 0, 1, 1], "correct_unfiltered": [1, 0, 1, 0]}
    losses = {"loss": [1.0, 2.0, 3.0, 4.0], "loss_unfiltered": [0.5, 1.5, 2.5, 3.5]}
    cells = []
    for answers in (alike, one_lost):
        frame = pd.DataFrame(
            {"task": "it", "px": 64, "scan": "group_2", "image": range(4), **answers, **losses}
        )
        cells.append(resize_filter.to_markdown(frame).splitlines()[-1].strip("| ").split(" | "))
    assert cells[0] == [
        "it",
        "64",
        "group 2",
        "4",
        "50.0",
        "50.0",
        "+0.00 ± 0.00",
        "2.500",
        "+0.5000 ± 0.0000",
    ]
    # 1 of 4: the standard error of (0, 0, 0, 1) is 0.25, and the half width is 1.96 times that.
    assert cells[1][4:7] == ["75.0", "50.0", "+25.00 ± 49.00"]


def test_a_folder_without_native_images_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"holds no \.JPEG file\. Name a folder of images with --images"):
        native_samples(3, tmp_path)


def test_fewer_images_than_asked_for_come_again(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / f"{name}.JPEG").write_bytes(b"")
    samples = native_samples(3, tmp_path)
    found = [(sample.id, sample.labels["number"]) for sample in samples]
    assert found == [("0/a.JPEG", 0), ("0/b.JPEG", 1), ("1/a.JPEG", 0)]
