"""Committed results: every row passes the validator, and every table follows from the committed rows."""

from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from pcr_exp.analysis.quality import summarise_quality
from pcr_exp.analysis.quality_files import load_quality
from pcr_exp.analysis.read_runs import read_runs, unfinished_runs
from pcr_exp.analysis.render import to_markdown
from pcr_exp.analysis.runs_table import eval_curves, runs_frame
from pcr_exp.analysis.summary import summary_table

RESULTS = Path(__file__).parents[1] / "results"
# A committed set has a README; results/demo and results/runs are a user's own.
RUN_SETS = sorted(page.parent for page in RESULTS.glob("*/README.md") if (page.parent / "runs").is_dir())
QUALITY = RESULTS / "quality"


def test_there_are_results() -> None:
    assert {folder.name for folder in RUN_SETS} >= {"time_to_accuracy", "short_real"}
    assert len(load_quality(QUALITY)["dataset"].unique()) >= 5


@pytest.mark.parametrize("folder", RUN_SETS, ids=lambda folder: folder.name)
def test_tables_follow_from_the_rows(folder: Path) -> None:
    runs = read_runs(folder / "runs")  # the validator of runs to come reads every row
    assert runs and unfinished_runs(folder / "runs").empty
    frame = runs_frame(runs)
    summary = summary_table(frame, load_quality(QUALITY))
    for name, table in (("summary.csv", summary), ("runs.csv", frame)):
        rebuilt = pd.read_csv(StringIO(table.to_csv(index=False)))
        pd.testing.assert_frame_equal(pd.read_csv(folder / name), rebuilt)
    assert (folder / "summary.md").read_text() == to_markdown(summary)
    drawn = pd.read_csv(folder / "time_to_accuracy.csv")
    assert len(drawn) == len(eval_curves(runs))


@pytest.mark.parametrize("folder", RUN_SETS, ids=lambda folder: folder.name)
def test_runs_say_where_they_come_from_and_their_clocks_add_up(folder: Path) -> None:
    for run in read_runs(folder / "runs"):
        manifest = run.manifest
        assert manifest.git_sha and manifest.git_dirty is False, f"{manifest.run_id}: not of a clean commit"
        assert manifest.cpu and manifest.num_cores >= 1
        last = run.rows[-1]
        split = last["train_s"] + last["wait_s"] + last["eval_s"] + last["other_s"]
        assert split == pytest.approx(last["wall_s"], rel=0.01)


@pytest.mark.parametrize("rows", sorted(QUALITY.rglob("quality.csv")), ids=lambda rows: rows.parent.name)
def test_quality_summaries_follow_from_their_rows(rows: Path) -> None:
    summary = pd.read_csv(rows.with_name("quality_summary.csv"))
    pd.testing.assert_frame_equal(summary, summarise_quality(pd.read_csv(rows)), check_dtype=False)


def test_io_bound_speed_follows_the_bytes() -> None:
    """The demo's regime: group 5 at least 1.8 x the baseline's images/s, no level above its byte ratio."""
    summary = summary_table(runs_frame(read_runs(RESULTS / "time_to_accuracy" / "runs")))
    for _, rows in summary.groupby("label"):
        level = rows.set_index("scan")
        speed, size = level["images_per_s_mean"], level["mean_image_bytes"]
        assert speed["group_5"] >= 1.8 * speed["baseline"]
        for scan in ("group_1", "group_2", "group_5", "group_10"):
            assert speed[scan] / speed["baseline"] <= 1.05 * size["baseline"] / size[scan]
        assert level["wait_share_mean"]["group_1"] < 0.25, "limited by compute"
