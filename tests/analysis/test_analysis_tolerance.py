"""Final accuracy against MS-SSIM, and accuracy against time beside epochs."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import linregress

from pcr_exp.analysis.figures.accuracy_vs_mssim import draw_accuracy_vs_mssim
from pcr_exp.analysis.figures.efficiency import draw_efficiency
from pcr_exp.analysis.read_runs import read_runs
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.runs_table import eval_curves, load_runs
from pcr_exp.analysis.tolerance import FIT_COLUMNS, POINT_COLUMNS, tolerance_fits, tolerance_points

QUALITY = pd.DataFrame(
    {"dataset": ["photos"] * 4, "group": [1, 1, 2, 5], "ms_ssim": [0.7, 0.9, 0.95, 0.99], "id": list("abcd")}
)
FINAL = {"group_1": (0.5, 0.6), "group_2": (0.7, 0.75), "group_5": (0.8, 0.7), "baseline": (0.85, 0.8)}


@pytest.fixture
def runs_root(tmp_path: Path, make_run: Callable[..., Path]) -> Path:
    for scan, finals in FINAL.items():
        for seed, final in enumerate(finals):
            # The best epoch is not the last: final accuracy is meant.
            make_run(tmp_path / "runs", scan, seed=seed, top1=(0.2, 0.95, final))
    return tmp_path / "runs"


def test_a_point_is_a_runs_last_accuracy_at_its_mean_quality(runs_root: Path) -> None:
    points = tolerance_points(load_runs(runs_root), QUALITY)
    assert list(points.columns) == POINT_COLUMNS and len(points) == 8
    by_scan = points.groupby("scan")["ms_ssim"].first().to_dict()
    assert by_scan == {"baseline": 1.0, "group_1": pytest.approx(0.8), "group_2": 0.95, "group_5": 0.99}
    assert sorted(points.loc[points["scan"] == "group_1", "final_top1"]) == [0.5, 0.6]


def test_levels_that_were_not_measured_are_left_out(runs_root: Path) -> None:
    points = tolerance_points(load_runs(runs_root), QUALITY[QUALITY["group"] < 5])
    assert set(points["scan"]) == {"baseline", "group_1", "group_2"}
    assert list(tolerance_points(load_runs(runs_root).iloc[:0], QUALITY).columns) == POINT_COLUMNS


def test_the_line_is_least_squares_over_runs(runs_root: Path) -> None:
    points = tolerance_points(load_runs(runs_root), QUALITY)
    (fit,) = tolerance_fits(points).to_dict("records")
    oracle = linregress(points["ms_ssim"], points["final_top1"])
    assert (fit["slope"], fit["intercept"], fit["r"]) == pytest.approx(
        (oracle.slope, oracle.intercept, oracle.rvalue)
    )
    assert (fit["num_runs"], fit["num_levels"]) == (8, 4)


def test_one_quality_has_no_line_and_one_accuracy_no_correlation(runs_root: Path) -> None:
    points = tolerance_points(load_runs(runs_root), QUALITY)
    (fit,) = tolerance_fits(points[points["scan"] == "baseline"]).to_dict("records")
    assert pd.isna(fit["slope"]) and pd.isna(fit["r"]) and fit["num_runs"] == 2
    (flat,) = tolerance_fits(points.assign(final_top1=0.5)).to_dict("records")
    assert flat["slope"] == pytest.approx(0, abs=1e-12) and pd.isna(flat["r"])
    (ax,) = draw_accuracy_vs_mssim(points[points["scan"] == "baseline"]).axes
    assert "no line: one MS-SSIM" in ax.texts[0].get_text()


def test_the_figure_has_points_line_and_numbers(runs_root: Path) -> None:
    points = tolerance_points(load_runs(runs_root), QUALITY)
    (ax,) = draw_accuracy_vs_mssim(points).axes
    assert "n = 8 runs" in ax.texts[0].get_text() and "r = 0.9" in ax.texts[0].get_text()
    assert len(ax.lines) == 1 + 4 * 2  # the line; per level the runs and their mean
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["baseline", "group 1", "group 2", "group 5"]


def test_small_differences_are_not_drawn_large(runs_root: Path) -> None:
    points = tolerance_points(load_runs(runs_root), QUALITY).assign(final_top1=0.5)
    (ax,) = draw_accuracy_vs_mssim(points).axes
    low, high = ax.get_ylim()
    assert high - low == pytest.approx(0.10)


def test_time_stands_beside_epochs(runs_root: Path) -> None:
    against_time, against_epochs = draw_efficiency(eval_curves(read_runs(runs_root))).axes
    assert against_time.get_xlabel() == "training + data wait (s)"
    assert against_epochs.get_xlabel() == "epochs completed"
    assert len(against_time.lines) == len(against_epochs.lines)
    assert against_time.get_ylim() == against_epochs.get_ylim()


def test_the_report_draws_it_where_quality_was_measured(
    runs_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = QUALITY.assign(bytes=[10, 10, 20, 50], num_scales=5, ssim=0.9)
    monkeypatch.setattr("pcr_exp.analysis.report.load_quality", lambda _: rows)
    report = write_report(runs_root, tmp_path, tmp_path / "out")
    names = {path.name for path in (*report.figures, *report.tables)}
    assert {"accuracy_vs_mssim.png", "time_and_epochs.png", "accuracy_vs_mssim_fits.csv"} <= names
    assert list(pd.read_csv(tmp_path / "out" / "accuracy_vs_mssim_fits.csv").columns) == FIT_COLUMNS
    monkeypatch.setattr("pcr_exp.analysis.report.load_quality", lambda _: rows.iloc[:0])
    without = write_report(runs_root, tmp_path, tmp_path / "without")
    assert "accuracy_vs_mssim.png" not in {path.name for path in without.figures}
