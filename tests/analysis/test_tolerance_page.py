"""The page on what frozen features tolerate: two answers, bytes, and agreement with the rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import cut_markers
from tolerance_rows import measured

from pcr_exp.analysis.tolerance import (
    Measured,
    answers_table,
    bytes_table,
    draw_curves,
    draw_matrix,
    matrix_of,
)
from pcr_exp.analysis.tolerance_page import load_tolerance, page, write_tables, write_tolerance

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(RESULTS.glob("tolerance/*/"))

pytestmark = pytest.mark.usefixtures("light_figures")


def text_of(rows: Measured) -> str:
    matrix, sizes = matrix_of(rows), bytes_table(rows)
    return page(matrix, sizes, answers_table(matrix, sizes, rows.facts), rows.facts)


def test_two_answers_that_may_differ() -> None:
    """Trained at group 1, a classifier falls to chance level at all scans and loses nothing at group 1."""
    text = text_of(measured({(0, 2): 200}))
    full, same = (line for line in text.splitlines() if line.startswith("**Trained at a group"))
    assert full.startswith("**Trained at a group, used at all scans:** **group 5** is the smallest")
    assert "**group 5** is the smallest that is non-inferior within 2 points of top-1 (95 %): it" in full
    assert "loses 0.00 (0.00 to 0.00) points. It reads 4 kB an image, 40.0% of the files' 10 kB;" in full
    assert same.startswith(
        "**Trained at a group, used at the group trained on:** **group 1** is the smallest"
    )
    assert "name a storage" in full and "top-1 100.0 % (100.0 to 100.0); guessing reaches 50.0%" in text


def answers_of(rows: Measured) -> pd.DataFrame:
    return answers_table(matrix_of(rows), bytes_table(rows), rows.facts)


def test_a_loss_is_a_share_of_what_lies_between_all_scans_and_chance() -> None:
    """90 % at all scans and 50 % by chance leave 40 points; group 1 loses 20 of them."""
    answers = answers_of(measured({(2, 2): 40, (0, 2): 120, (0, 0): 40, (1, 1): 60}))
    shares = answers.set_index(["deployment", "train_group"])["lost_share"]
    assert shares.loc["full"].to_dict() == pytest.approx({1: 0.5, 5: -0.25, 10: 0})
    assert shares.loc["same"].to_dict() == pytest.approx({1: 0, 5: 0.125, 10: 0})


@pytest.mark.parametrize("num_wrong", [200, 300])
def test_where_all_scans_are_no_better_than_chance_there_is_nothing_to_lose(num_wrong: int) -> None:
    assert answers_of(measured({(2, 2): num_wrong}))["lost_share"].isna().all()


def test_too_few_images_and_undecided_groups_are_said() -> None:
    text = text_of(measured({(0, 2): 8, (1, 2): 8}))
    assert (
        "no group below 10 is non-inferior within 2 points of top-1 (95 %). Whether groups 1 and 5 are, these"
        in text
    )
    assert "There are too few images to tell" not in text
    few = text_of(measured({(0, 2): 2, (1, 2): 2}, margin=0.005))
    assert "**There are too few images to tell**: every interval reaches further than 0.5 points;" in few


def test_groups_that_all_lose_more_are_said_to() -> None:
    text = text_of(measured({(0, 2): 100, (1, 2): 100}))
    assert "used at all scans:** every group below 10 loses 2 points of top-1 or more." in text
    assert "too few" not in text


def test_features_that_tell_nothing_are_said_to() -> None:
    everywhere = {(i, j): 200 for i in range(3) for j in range(3)}
    assert "**These features do not tell the classes apart**" in text_of(measured(everywhere))


def test_groups_of_images_and_what_was_rejected_are_counted() -> None:
    text = text_of(measured({}, num_clusters=100, num_rejected=3))
    assert "400 images in 100 groups, 2 classes" in text and "3 images could not be decoded." in text
    assert "400 resamples of groups of images." in text


def test_seconds_are_bytes_over_bandwidth_and_a_seek_for_each_record() -> None:
    storage = {"name": "disk", "bandwidth_mib_per_s": 2.0, "seek_ms": 5.0, "latency_ms": 0.0}
    storage |= {"requests_per_s": None, "reads_in_flight": None, "cold_cache": False}
    rows = measured({(0, 2): 200}, storage=storage)
    sizes = bytes_table(rows).set_index("group")
    assert sizes.loc["5", "epoch_s"] == pytest.approx(1000 * 4000 / 2**21 + 100 * 0.005)
    assert sizes.loc["original", "epoch_s"] == pytest.approx(1000 * 10_000 / 2**21 + 0.5)
    text = text_of(rows)
    assert (
        "from disk (2 MiB/s, 5 ms seek) an epoch of 1,000 images takes at least 2.41 s instead of 5.27 s"
        in text
    )
    assert "s per epoch, storage alone" in text


def test_what_is_written_follows_from_its_rows(tmp_path: Path) -> None:
    rows = measured({(0, 2): 30, (0, 0): 3})
    written = write_tolerance(tmp_path / "one", rows, {"wall_s": 1.0})
    endings = {path.name for path in written}
    assert endings >= {
        "answers.png",
        "answers.pdf",
        "answers.csv",
        "matrix.png",
        "matrix.csv",
        "tolerance.md",
    }
    (tmp_path / "two").mkdir()
    write_tables(tmp_path / "two", load_tolerance(tmp_path / "one"))
    for name in ("answers.csv", "matrix.csv", "bytes.csv", "tolerance.md", "answers.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_groups_of_another_script_are_short_in_the_legend() -> None:
    """ "group 1 of spectral", four times in a row, would leave the panels a third of the width."""
    rows = measured({}, scans="spectral", groups=[1, 2, 6])
    matrix, sizes = matrix_of(rows), bytes_table(rows)
    figure = draw_curves(answers_table(matrix, sizes, rows.facts), rows.facts)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["group 1", "group 2", "group 6"]


def test_the_figure_shows_points_and_the_margin() -> None:
    """Half of the images are lost at group 1 and half a point at group 5; both losses are readable."""
    rows = measured({(0, 2): 200, (1, 2): 2})
    matrix, sizes = matrix_of(rows), bytes_table(rows)
    full, same = draw_curves(answers_table(matrix, sizes, rows.facts), rows.facts).axes
    assert np.asarray(full.lines[0].get_ydata()).tolist() == pytest.approx([-50, -0.5, 0])
    assert full.get_ylabel() == "points of top-1\nagainst all scans" and full.get_ylim() == same.get_ylim()
    assert {"-1", "0", "+1", "-30"} <= {tick.get_text() for tick in full.get_yticklabels()}
    heights = full.transAxes.inverted().transform(full.transData.transform([(1, 0), (1, -1)]))[:, 1]
    assert heights[0] - heights[1] > 0.08
    assert not cut_markers(full)
    assert -2 in [line.get_ydata()[0] for line in full.lines if len(set(line.get_ydata())) == 1]


def test_the_matrix_shows_the_intervals_that_it_announces() -> None:
    rows = measured({(0, 2): 30})
    matrix = matrix_of(rows)
    ax = draw_matrix(matrix, rows.facts).axes[0]
    cell = matrix[(matrix["train_group"] == 1) & (matrix["test_group"] == 10)].iloc[0]
    shown = [text.get_text() for text in ax.texts]
    assert f"{100 * cell['loss']:.1f}" in shown
    assert f"{100 * cell['loss_low']:.1f} to {100 * cell['loss_high']:.1f}" in shown
    assert shown.count("0.0 to 0.0") == 0, "no interval where nothing varies"


def test_ms_ssim_is_of_crops() -> None:
    rows = measured({}, image_size=96)
    ms_ssim = np.full((3, 5), 0.9, dtype=np.float32)
    assert "| MS-SSIM (crops of 96 px) |" in text_of(replace(rows, ms_ssim=ms_ssim))


def test_log_odds_are_kept_where_they_are_scored(tmp_path: Path) -> None:
    rows = measured({}, headline="auc")
    odds = np.where(rows.predictions.classes == 1, 1.5, -1.5).astype(np.float32)
    rows = replace(rows, predictions=replace(rows.predictions, outputs=odds))
    write_tolerance(tmp_path, rows, {})
    np.testing.assert_array_equal(load_tolerance(tmp_path).predictions.outputs, odds)
    assert (matrix_of(rows)["score"] == 1).all()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_committed_tables_follow_from_the_committed_rows(folder: Path) -> None:
    rows = load_tolerance(folder)
    matrix, sizes = matrix_of(rows), bytes_table(rows)
    answers = answers_table(matrix, sizes, rows.facts)
    assert (folder / "tolerance.md").read_text() == page(matrix, sizes, answers, rows.facts)
    drawn = pd.read_csv(folder / "answers.csv")
    np.testing.assert_allclose(drawn["loss_high"], answers["loss_high"], atol=1e-9)
