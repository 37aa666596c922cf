"""Final accuracy against MS-SSIM."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments.pages import PAGES
from experiments.pcr.accuracy_vs_mssim import (
    FIT_COLUMNS,
    POINT_COLUMNS,
    draw_accuracy_vs_mssim,
    tolerance_fits,
    tolerance_points,
)
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.runs import Run, read_runs
from tests.analysis.test_runs_table import own_quality

pytestmark = pytest.mark.usefixtures("light_figures")

MS_SSIM = {1: 0.8, 2: 0.95, 3: 0.97, 5: 0.99}
FINAL = {
    "group_1": (0.5, 0.6),
    "group_2": (0.7, 0.75),
    "group_3": (0.75, 0.75),
    "group_5": (0.8, 0.7),
    "group_10": (0.84, 0.8),
    "baseline": (0.86, 0.8),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> list[Run]:
    root = tmp_path_factory.mktemp("levels")
    for scan, finals in FINAL.items():
        for seed, final in enumerate(finals):
            # The best epoch is not the last; the last one counts.
            make_run(root / "runs", scan, seed=seed, top1=(0.2, 0.95, final))
    measured = [own_quality(group=group, ms_ssim_mean=mean, num_scales=4) for group, mean in MS_SSIM.items()]
    facts = {"quality": measured, "majority_share": 0.4}
    return [replace(run, manifest=replace(run.manifest, **facts)) for run in read_runs(root / "runs")]


@pytest.fixture(scope="module")
def points(runs: list[Run]) -> pd.DataFrame:
    return tolerance_points(run_frame(runs))


def test_a_point_is_a_seeds_last_accuracy_at_its_level(points: pd.DataFrame) -> None:
    assert list(points.columns) == POINT_COLUMNS
    by_scan = points.groupby("scan")["ms_ssim"].first().to_dict()
    assert by_scan == {"all scans": 1.0, "group_1": 0.8, "group_2": 0.95, "group_3": 0.97, "group_5": 0.99}
    assert sorted(points.loc[points["scan"] == "group_1", "final_score"]) == [0.5, 0.6]


def test_baseline_and_all_scans_of_one_seed_are_one_point(points: pd.DataFrame) -> None:
    whole = points[points["scan"] == "all scans"]
    assert whole.set_index("seed")["final_score"].to_dict() == pytest.approx({0: 0.85, 1: 0.8})
    assert len(points) == 2 * 5


def test_folds_of_one_seed_are_points_of_their_own(runs: list[Run]) -> None:
    frame = run_frame(runs)
    folds = tolerance_points(frame.assign(fold=frame["seed"].map(str), seed=0))
    assert len(folds) == 2 * 5 and folds["fold"].nunique() == 2
    assert tolerance_fits(folds)["num_seeds"].tolist() == [2]


def test_levels_that_were_not_measured_are_left_out(runs: list[Run]) -> None:
    nothing = [replace(run, manifest=replace(run.manifest, quality=[])) for run in runs]
    assert set(tolerance_points(run_frame(nothing))["scan"]) == {"all scans"}
    assert list(tolerance_points(run_frame([])).columns) == POINT_COLUMNS


def test_a_line_through_five_levels_has_an_interval(points: pd.DataFrame) -> None:
    (fit,) = tolerance_fits(points).to_dict("records")
    assert (fit["num_points"], fit["num_levels"], fit["num_seeds"], fit["no_line"]) == (10, 5, 2, "")
    means = points.groupby("scan")[["ms_ssim", "final_score"]].mean()
    slope = means.cov().loc["ms_ssim", "final_score"] / means["ms_ssim"].var()
    assert fit["slope"] == pytest.approx(slope) and 0 < fit["slope_ci95"] < 1


def test_four_levels_have_no_line_whatever_the_seeds(points: pd.DataFrame) -> None:
    (fit,) = tolerance_fits(points[points["scan"] != "group_3"]).to_dict("records")
    assert fit["slope"] != fit["slope"] and fit["slope_ci95"] != fit["slope_ci95"]
    assert fit["no_line"] == "no line: 4 levels of quality, a line wants 5"
    (ax,) = draw_accuracy_vs_mssim(points[points["scan"] != "group_3"]).axes
    assert "no line: 4 levels of quality" in ax.texts[-1].get_text()


def test_the_figure_has_points_line_and_what_guessing_reaches(points: pd.DataFrame) -> None:
    (ax,) = draw_accuracy_vs_mssim(points).axes
    words = "\n".join(text.get_text() for text in ax.texts)
    assert "± " in words and "5 levels" in words and "n = 2 seeds" in words
    assert "MS-SSIM (crops of 64 px), 4 scales" in words and "majority\n40%" in words
    legend = ax.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert sorted(names) == ["all scans", "group 1", "group 2", "group 3", "group 5"]


def test_small_differences_are_not_drawn_large(points: pd.DataFrame) -> None:
    (ax,) = draw_accuracy_vs_mssim(points.assign(final_score=0.5, majority_share=None, num_classes=2)).axes
    low, high = ax.get_ylim()
    assert high - low >= 0.10 - 1e-9


def test_the_report_draws_it_where_quality_was_measured(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(found: list[Run], out: str) -> set[str]:
        monkeypatch.setattr("pcr_exp.analysis.report.read_runs", lambda *_, **__: found)
        written = write_report(tmp_path / "runs", tmp_path, tmp_path / out, pages=PAGES)
        return {path.name for path in (*written.figures, *written.tables)}

    (tmp_path / "runs").mkdir()
    wanted = {"accuracy_vs_mssim.png", "accuracy_vs_mssim_fits.csv"}
    assert wanted <= report(runs, "out")
    assert list(pd.read_csv(tmp_path / "out" / "accuracy_vs_mssim_fits.csv").columns) == FIT_COLUMNS
    assert not wanted & report(
        [replace(run, manifest=replace(run.manifest, quality=[])) for run in runs], "without"
    )
