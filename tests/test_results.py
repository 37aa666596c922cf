"""Committed trainings: every row passes the validator, and every table follows from the committed rows."""

from functools import cache
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from pcr_exp.analysis.combined.page import combined_markdown
from pcr_exp.analysis.combined.table import combined_frame, combined_summary
from pcr_exp.analysis.core import read_runs as reading
from pcr_exp.analysis.core.headline import as_written, guessed_of
from pcr_exp.analysis.core.permitted import is_exclusive
from pcr_exp.analysis.core.read_runs import Run, read_timed_runs, unfinished_runs
from pcr_exp.analysis.core.runs_table import eval_curves, runs_frame
from pcr_exp.analysis.echo.page import echo_to_markdown
from pcr_exp.analysis.echo.table import echo_frame, tuned
from pcr_exp.analysis.gradients.page import gradients_to_markdown
from pcr_exp.analysis.gradients.table import REFERENCE, gradient_frame, gradient_table
from pcr_exp.analysis.model.predicted_times import predict_times
from pcr_exp.analysis.policies import trace_of
from pcr_exp.analysis.quality import files as quality_files
from pcr_exp.analysis.scans.accuracy_vs_mssim import tolerance_fits, tolerance_points
from pcr_exp.analysis.scans.comparison import compare_setting, comparison_to_markdown
from pcr_exp.analysis.scans.fair_baseline import (
    GROUP_COLUMNS,
    fair_baseline_table,
    fair_baseline_to_markdown,
)
from pcr_exp.analysis.scans.page import to_markdown
from pcr_exp.analysis.scans.projected_page import projected_to_markdown
from pcr_exp.analysis.scans.projected_times import projected_times, read_targets
from pcr_exp.analysis.scans.table import scan_comparisons, summary_table
from pcr_exp.config.runners import FiguresConfig
from pcr_exp.runners.figures import compare
from pcr_exp.runners.redraw import USERS_OWN
from pcr_exp.runs.packed import ROWS_FILE, RUNS_FILE
from pcr_exp.runs.predictions import PREDICTIONS_FILE

RESULTS = Path(__file__).parents[1] / "results"
# A committed set has a README; results/demo and results/runs are a user's own.
ARCHIVE = RESULTS / "archive"
PAGES = [*RESULTS.glob("*/README.md"), *ARCHIVE.glob("*/README.md")]
RUN_SETS = sorted(
    path.parents[1]
    for path in RESULTS.rglob(f"runs/{RUNS_FILE}")
    if path.relative_to(RESULTS).parts[0] not in USERS_OWN
)
ACCURACY_AND_QUALITY = [path for folder in RUN_SETS if (path := folder / "accuracy_vs_mssim.csv").is_file()]
QUALITY = RESULTS / "quality"
DECODE_MODES = RESULTS / "decode_modes"
ACTIVATIONS = RESULTS / "compressed_activations"
MODEL = RESULTS / "throughput_model"
LAYERS = "activations"
"""Bounds and bytes of every layer, a file per run that kept activations compressed."""


@cache
def read_runs(folder: Path, target: float | None = None) -> list[Run]:
    """The validator of runs to come reads every row, once for all tests of a set."""
    return reading.read_runs(folder, target)


@cache
def load_quality(folder: Path) -> pd.DataFrame:
    return quality_files.load_quality(folder)


def test_there_are_results() -> None:
    assert {folder.name for folder in RUN_SETS} >= {"time_to_accuracy", "short_real"}
    assert len(load_quality(QUALITY)["dataset"].unique()) >= 5


def test_runs_are_packed() -> None:
    """A set is a few files: no committed run lies in a folder of its own."""
    for folder in RUN_SETS:
        names = {path.name for path in (folder / "runs").iterdir()} - {"notes.json", LAYERS, PREDICTIONS_FILE}
        assert names == {RUNS_FILE, ROWS_FILE}, folder


@pytest.mark.parametrize("folder", RUN_SETS, ids=lambda folder: folder.name)
def test_tables_follow_from_the_rows(folder: Path) -> None:
    of_runs = pd.read_csv(folder / "runs.csv")
    declared = of_runs[f"target_{headline_of(of_runs)}"].unique()
    target = declared[0] if len(declared) == 1 else None
    runs = read_runs(folder / "runs", target)
    assert runs and unfinished_runs(folder / "runs").empty
    frame = runs_frame(runs, load_quality(QUALITY))
    summary = summary_table(frame)
    require_rebuilt(folder / "summary.csv", summary)
    require_rebuilt(folder / "runs.csv", frame)
    assert (folder / "summary.md").read_text() == to_markdown(summary)
    compared = scan_comparisons(eval_curves(runs))
    drawn = folder / "accuracy_vs_epoch.csv"
    assert (len(pd.read_csv(drawn)) if drawn.exists() else 0) == len(compared)


def headline_of(table: pd.DataFrame) -> str:
    """The metric that a file's runs are judged by: `top1` where it has a column `target_top1`."""
    (name,) = (name for name in table.columns if name.startswith("target_"))
    return str(name).removeprefix("target_")


def require_rebuilt(path: Path, table: pd.DataFrame) -> None:
    """The committed table is the one that the committed rows give."""
    rebuilt = pd.read_csv(StringIO(as_written(table).to_csv(index=False)))
    pd.testing.assert_frame_equal(pd.read_csv(path), rebuilt)


@pytest.mark.parametrize("folder", RUN_SETS, ids=lambda folder: folder.name)
def test_no_table_says_more_than_its_runs_allow(folder: Path) -> None:
    """Neither seconds of unlimited storage or of a shared machine, nor times to a target of guessing."""
    for run in read_runs(folder / "runs"):
        assert run.majority_share is not None, f"{run.manifest.run_id}: what guessing reaches is not known"
    summary = pd.read_csv(folder / "summary.csv", keep_default_na=False, na_values=[""])
    silent = summary["no_seconds"].notna()
    times = ["images_per_s_mean", "wait_share_mean", "time_to_target_s_mean", "speedup_over_baseline"]
    assert summary.loc[silent, times].isna().all(axis=None)
    headline = headline_of(summary)
    rows = summary.assign(headline=headline)
    guessed = summary[f"target_{headline}"] <= rows.apply(guessed_of, axis=1)
    assert summary.loc[guessed, ["time_to_target_s_mean", "speedup_over_baseline"]].isna().all(axis=None)
    for figure in ("time_to_accuracy", "time_and_epochs"):
        if (folder / f"{figure}.csv").exists():
            assert pd.read_csv(folder / f"{figure}.csv")["no_seconds"].isna().all()
    for page in folder.glob("*.md"):
        assert "1" not in counts_of(page), f"{page}: n = 1 without its mark"


def counts_of(page: Path) -> set[str]:
    """The cells below every `n` of a page's tables."""
    found, place = set(), None
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            place = None
        elif place is None:
            place = cells.index("n") if "n" in cells else -1
        elif place >= 0:
            found.add(cells[place])
    return found


def test_the_car_that_is_no_corvette_is_no_speed_up() -> None:
    """Nine in ten are none: to say so always reaches 75 %, and the runs shared the machine besides."""
    text = (ARCHIVE / "task_tolerance" / "summary.md").read_text()
    assert " x |" not in text and "90.7%" in text
    runs = pd.read_csv(ARCHIVE / "task_tolerance" / "runs.csv")
    assert runs["time_to_target_s"].isna().all()


@pytest.mark.parametrize("folder", RUN_SETS, ids=lambda folder: folder.name)
def test_tables_of_neighbours_follow_from_the_rows(folder: Path) -> None:
    """Echo, gradients, combined: where a set has such runs, its table and its figure's rows are theirs."""
    runs = read_runs(folder / "runs")
    frame = echo_frame(runs)
    echoes = not (frame["factor"] == 1).all()
    assert (folder / "echo.md").exists() == echoes
    if echoes:
        summary = tuned(frame, "fresh_to_target")
        require_rebuilt(folder / "echo.csv", summary)
        assert (folder / "echo.md").read_text() == echo_to_markdown(summary)
    frame = gradient_frame(runs)
    compresses = not (frame["codec"] == REFERENCE).all()
    assert (folder / "gradients.md").exists() == compresses
    if compresses:
        table = gradient_table(frame)
        require_rebuilt(folder / "gradients.csv", table)
        assert (folder / "gradients.md").read_text() == gradients_to_markdown(table)
    summary = combined_summary(combined_frame(runs))
    assert (folder / "combined.md").exists() == (len(summary) > 0)
    if len(summary):
        require_rebuilt(folder / "combined.csv", summary)
        assert (folder / "combined.md").read_text() == combined_markdown(summary)


@pytest.mark.parametrize(
    "folder", [ARCHIVE / "policies", RESULTS / "changing_bandwidth"], ids=lambda p: p.name
)
def test_traces_of_policies_follow_from_the_rows(folder: Path) -> None:
    runs = read_runs(folder / "runs")
    traces = sorted((folder / "traces").glob("*.csv"))
    assert traces
    for path in traces:
        policy, _, seed = path.stem.rpartition("_s")
        (run,) = [
            run for run in runs if (run.config["scan"]["name"], run.manifest.seed) == (policy, int(seed))
        ]
        require_rebuilt(path, trace_of(run, runs))


def test_savings_of_a_policy_are_of_the_whole_run() -> None:
    trace = pd.read_csv(ARCHIVE / "policies" / "traces" / "mssim_s0.csv")
    assert trace["run_saved_share"].iloc[0] == pytest.approx(0.78, abs=0.005)
    runs = pd.read_csv(ARCHIVE / "policies" / "side_by_side.csv")
    plateau = runs[runs["scan"].str.startswith("plateau")]
    assert (plateau["record_mib"] * 2**20 / 1e6).mean() == pytest.approx(124.6, abs=0.1), (
        "its probes are bytes"
    )


@pytest.mark.parametrize("folder", RUN_SETS, ids=lambda folder: folder.name)
def test_runs_say_where_they_come_from_and_their_clocks_add_up(folder: Path) -> None:
    for run in read_runs(folder / "runs"):
        manifest = run.manifest
        assert manifest.git_sha and manifest.git_dirty is False, f"{manifest.run_id}: not of a clean commit"
        assert manifest.cpu and manifest.num_cores >= 1
        last = run.rows[-1]
        split_s = sum(last[part] for part in ("train_s", "wait_s", "probe_s", "eval_s", "other_s"))
        assert split_s == pytest.approx(last["wall_s"], rel=0.01)


@pytest.mark.parametrize("folder", sorted(RESULTS.glob("fair_baseline/*/")), ids=lambda folder: folder.name)
def test_fair_baselines_follow_from_their_runs(folder: Path) -> None:
    table = fair_baseline_table(read_runs(folder / "runs"))
    require_rebuilt(folder / "fair_baseline.csv", table)
    assert (folder / "fair_baseline.md").read_text() == fair_baseline_to_markdown(table)
    assert (table.groupby(GROUP_COLUMNS)["chosen"].sum() == 1).all()


@pytest.mark.parametrize("timed", sorted(RESULTS.glob("*/*/timed")), ids=lambda timed: timed.parent.name)
def test_projected_times_follow_from_both_kinds_of_runs(timed: Path) -> None:
    folder = timed.parent
    assert {path.name for path in timed.iterdir()} == {RUNS_FILE, ROWS_FILE}
    shorts = read_timed_runs(timed)
    for run in shorts:
        assert run.manifest.git_dirty is False and is_exclusive(run), f"{run.manifest.run_id}: not exclusive"
    learned = read_runs(RESULTS / "finetuning" / folder.name / "runs")
    table = projected_times(learned, shorts, read_targets(RESULTS / "fair_baseline"))
    rebuilt = pd.read_csv(StringIO(table.to_csv(index=False)))
    pd.testing.assert_frame_equal(pd.read_csv(folder / "projected_times.csv"), rebuilt)
    assert (folder / "projected_times.md").read_text() == projected_to_markdown(table)


def test_predicted_times_follow_from_the_runs() -> None:
    folders = [ARCHIVE / "time_to_accuracy" / "runs", ARCHIVE / "short_real" / "runs"]
    times = predict_times([run for folder in folders for run in read_runs(folder)])
    committed = pd.read_csv(MODEL / "this_machine" / "predicted_vs_measured_times.csv")
    pd.testing.assert_frame_equal(committed, pd.read_csv(StringIO(as_written(times).to_csv(index=False))))


@pytest.mark.parametrize("path", ACCURACY_AND_QUALITY, ids=lambda p: p.parent.name)
def test_points_of_accuracy_and_quality_follow_from_the_runs(path: Path) -> None:
    points = tolerance_points(runs_frame(read_runs(path.parent / "runs"), load_quality(QUALITY)))
    require_rebuilt(path, points)
    fits = tolerance_fits(points)
    require_rebuilt(path.with_name("accuracy_vs_mssim_fits.csv"), fits)
    assert (fits["num_levels"] < 5).all() and fits["slope"].isna().all(), "four levels are no line"


def test_io_bound_speed_follows_the_bytes() -> None:
    """The demo's regime: group 5 at least 1.8 x the baseline's images/s, no level above its byte ratio."""
    summary = summary_table(runs_frame(read_runs(ARCHIVE / "time_to_accuracy" / "runs")))
    for _, rows in summary.groupby("label"):
        level = rows.set_index("scan")
        speed, size = level["images_per_s_mean"], level["mean_image_bytes"]
        assert speed["group_5"] >= 1.8 * speed["baseline"]
        for scan in ("group_1", "group_2", "group_5", "group_10"):
            assert speed[scan] / speed["baseline"] <= 1.05 * size["baseline"] / size[scan]
        assert level["wait_share_mean"]["group_1"] < 0.25, "limited by compute"


def test_the_page_on_decode_modes_follows_from_its_runs() -> None:
    table = compare_setting(read_runs(DECODE_MODES / "runs"), "loader.decode", "libjpeg")
    text = comparison_to_markdown(table, "loader.decode", "libjpeg")
    assert (table["n"] == 3).all()
    assert text in (DECODE_MODES / "README.md").read_text()
    assert (DECODE_MODES / "comparison.md").read_text() == text + "\n"


@pytest.mark.usefixtures("light_figures")
def test_ways_of_keeping_activations_are_compared_from_their_runs(tmp_path: Path) -> None:
    config = FiguresConfig(runs_root=str(ACTIVATIONS / "runs"), out=str(tmp_path))
    text = compare(config, "activations", "none")
    assert (
        (ACTIVATIONS / "comparison.md").read_text() == text + "\n" == (tmp_path / "comparison.md").read_text()
    )
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "comparison_curves.csv"), pd.read_csv(ACTIVATIONS / "comparison_curves.csv")
    )
    assert (tmp_path / "comparison_curves.png").stat().st_size > 0
