"""The report: from two folders to tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from pcr_exp.analysis.quality import write_quality
from pcr_exp.analysis.report import write_report
from pcr_exp.errors import RunError
from pcr_exp.measuring.quality import QUALITY_COLUMNS
from pcr_exp.records.index import RecordIndex

pytestmark = pytest.mark.usefixtures("light_figures")

MakeRun = Callable[..., Path]
DECODED = {"decode": "libjpeg", "antialias": False}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    rows = [["a.jpg", 2, 600, 0.8, 5, 0.7, 320, 240], ["a.jpg", 10, 9000, 1.0, 5, 1.0, 320, 240]]
    index = RecordIndex("photos", "val", "pcr", "0123", 10, {"kind": ["photo"]}, [])
    write_quality(
        tmp_path / "quality" / "photos", pd.DataFrame(rows, columns=QUALITY_COLUMNS), index, DECODED
    )
    return tmp_path / "quality"


def names(paths: list[Path]) -> list[str]:
    assert all(path.stat().st_size > 0 for path in paths)
    return [path.name for path in paths]


def test_runs_and_measurements_give_all_figures(tmp_path: Path, make_run: MakeRun, measured: Path) -> None:
    make_run(tmp_path / "runs", "baseline", epoch_s=40)
    make_run(tmp_path / "runs", "group_2")
    make_run(tmp_path / "runs", "group_2", seed=1, status="failed")
    report = write_report(tmp_path / "runs", measured, tmp_path / "out")
    assert [name for name in names(report.figures) if name.endswith(".png")] == [
        "accuracy_vs_epoch.png",
        "time_to_accuracy.png",
        "side_by_side.png",
        "mssim_vs_scan.png",
        "bytes_per_group.png",
    ]
    assert len(report.figures) == 15
    assert names(report.tables) == ["runs.csv", "summary.csv", "summary.md"]
    assert report.summary["ms_ssim"].isna().tolist() == [False, True], "the measured images are others"
    assert report.unfinished["status"].tolist() == ["failed"]
    text = report.tables[2].read_text()
    assert "4.00 x" in text
    assert "-s1-" in text
    assert len(pd.read_csv(report.tables[0])) == 2


def test_time_is_measured_to_another_target_if_one_is_given(tmp_path: Path, make_run: MakeRun) -> None:
    folder = make_run(tmp_path / "runs", "group_2")
    manifest = (folder / "manifest.json").read_bytes()
    told = write_report(tmp_path / "runs", tmp_path / "nothing", tmp_path / "told").summary
    asked = write_report(tmp_path / "runs", tmp_path / "nothing", tmp_path / "asked", 0.9).summary
    assert (told["target_score"].item(), asked["target_score"].item()) == (0.6, 0.9)
    assert (told["time_to_target_s_mean"].item(), asked["time_to_target_s_mean"].item()) == (20, 30)
    assert (folder / "manifest.json").read_bytes() == manifest


def test_either_is_enough(tmp_path: Path, make_run: MakeRun, measured: Path) -> None:
    make_run(tmp_path / "runs", "group_2")
    of_runs = write_report(tmp_path / "runs", tmp_path / "nothing", tmp_path / "of_runs")
    of_quality = write_report(tmp_path / "nothing", measured, tmp_path / "of_quality")
    assert len(of_runs.figures) == 9 and len(of_quality.figures) == 6
    assert of_quality.summary.empty and of_quality.tables == []


def test_settings_of_one_scan_level_are_no_figures_of_scan_levels(tmp_path: Path, make_run: MakeRun) -> None:
    for rate in (0.1, 0.2, 0.3):
        make_run(tmp_path / "runs", "group_2", learning_rate=rate)
    lone = write_report(tmp_path / "runs", tmp_path / "nothing", tmp_path / "lone")
    assert (lone.figures, lone.num_lone_groups) == ([], 3)
    make_run(tmp_path / "runs", "group_5", learning_rate=0.1)
    one = write_report(tmp_path / "runs", tmp_path / "nothing", tmp_path / "one")
    assert one.num_lone_groups == 2
    drawn = pd.read_csv(tmp_path / "one" / "time_to_accuracy.csv")
    assert set(drawn["scan"]) == {"group_2", "group_5"} and len(drawn["setting"].unique()) == 1


def test_nothing_to_report_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nothing to draw.*experiments\.train.*experiments\.quality"):
        write_report(tmp_path / "runs", tmp_path / "quality", tmp_path / "out")
    assert not (tmp_path / "out").exists()
