"""Committed tables of benchmarks follow from the committed rows."""

from pathlib import Path

import pandas as pd
import pytest
from benchmark_rows import save_rows, to_markdown

RESULTS = Path(__file__).parents[2] / "results"
NAMES = ("throttle", "records_speed", "throughput", "codec_speed")
ROWS = sorted(path for name in NAMES for path in (RESULTS / name).glob("*.csv"))


def test_there_are_results() -> None:
    assert {path.parent.name for path in ROWS} == {*NAMES}


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_page_shows_the_table_of_the_rows(path: Path) -> None:
    frame = pd.read_csv(path)
    assert frame["repeat"].nunique() >= 3
    assert to_markdown(frame) in (path.parent / "README.md").read_text()


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
