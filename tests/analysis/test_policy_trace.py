"""A policy's decisions as a table and as a figure."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pcr_exp.analysis.policies import TRACE_COLUMNS, draw_policy_trace, drawn_shares, policy_trace, saved_by


def decision(epoch: int, group: int, scores: dict[str, float], measure: str = "cosine") -> dict[str, Any]:
    return {
        "kind": "policy",
        "epoch": epoch,
        "step": 10 * epoch,
        "train_s": 2.0 * epoch,
        "wait_s": 1.0 * epoch,
        "samples_seen": 10 * epoch,
        "probe_s": 0.5,
        "probe_bytes": 2**20,
        "record_bytes": 250 * epoch,
        "group": group,
        "measure": measure,
        "scores": scores,
        "bytes_saved": 750 * epoch,
        "full_bytes": 1000 * epoch,
    }


ROWS = [
    decision(0, 10, {}, "given"),
    {"kind": "train"},
    decision(2, 5, {"1": 0.2, "5": 0.9}),
    decision(4, 1, {"1": 0.85, "5": 0.95}),
]


def test_the_trace_has_a_row_for_every_candidate() -> None:
    trace = policy_trace(ROWS)
    assert list(trace.columns) == TRACE_COLUMNS
    assert trace["seconds"].tolist() == [0.5, 6.5, 6.5, 12.5, 12.5]
    assert trace["group"].tolist() == [10, 5, 5, 1, 1]
    assert trace["candidate"].tolist()[1:] == [1, 5, 1, 5]
    assert trace["score"].tolist()[1:] == [0.2, 0.9, 0.85, 0.95]
    assert trace["record_bytes"].tolist() == [0, 500, 500, 1000, 1000]
    assert trace.iloc[:1][["candidate", "score"]].isna().all(axis=None)


END = {
    "kind": "eval",
    "train_s": 10.0,
    "wait_s": 5.0,
    "probe_s": 0.5,
    "samples_seen": 60,
    "record_bytes": 1200,
    "probe_bytes": 300,
    "full_bytes": 6000,
}


def test_what_is_saved_is_of_the_whole_run_and_probes_are_paid() -> None:
    """A policy that decides once, before the first image, saves bytes later; its row's 0 is not the total."""
    rows = [decision(0, 2, {"2": 0.96}, "ms_ssim"), END]
    assert saved_by(rows) == (6000 - 1200 - 300, 0.75)
    before = [{key: value for key, value in row.items() if key != "full_bytes"} for row in rows]
    assert np.isnan(saved_by(before)).all(), "rows from before they were counted"
    assert policy_trace(rows)["run_saved_share"].tolist() == [0.75]
    (groups, _) = draw_policy_trace(policy_trace(rows), "mssim", end_s=15.5).axes
    assert "75% of all bytes saved, probes paid" in groups.texts[0].get_text().replace("\n", " ")


def test_without_decisions_the_trace_is_empty() -> None:
    assert policy_trace([{"kind": "train"}]).empty


def test_the_figure_draws_groups_and_scores() -> None:
    groups, scores = draw_policy_trace(policy_trace(ROWS), "cosine", end_s=20.0).axes
    steps = groups.lines[0].get_xydata()
    assert steps.tolist() == [[0.5, 10], [6.5, 5], [12.5, 1], [20.0, 1]]
    assert [line.get_ydata().tolist() for line in scores.lines] == [[0.2, 0.85], [0.9, 0.95]]
    assert scores.get_ylabel() == "gradient cosine to all groups"
    assert "n = 2 comparisons; probes: 0.5 s, 1 MiB" in [text.get_text() for text in scores.texts]
    assert groups.get_xlim()[1] == pytest.approx(20)


def test_without_scores_there_is_one_panel() -> None:
    trace = policy_trace([decision(0, 1, {}, "given"), decision(3, 2, {}, "given")])
    (groups,) = draw_policy_trace(trace, "schedule", end_s=12.0).axes
    assert isinstance(trace, pd.DataFrame)
    assert len(groups.lines[0].get_xydata()) == 3


def test_a_mixture_shows_every_group_that_records_draw_and_how_often() -> None:
    """A single line at its central group would suggest that the others were never read."""
    shares = drawn_shares({"name": "mixture", "group": 1, "candidates": [1, 5, 10], "weights": [3, 1]})
    assert shares == {1: 0.75, 5: 0.25}, "two places away there is no weight"
    assert drawn_shares({"name": "group_1", "group": 1}) == {}
    trace = policy_trace([decision(0, 1, {}, "given")])
    (groups,) = draw_policy_trace(trace, "mixture", end_s=12.0, shares=shares).axes
    assert [line.get_ydata().tolist() for line in groups.lines] == [[1, 1], [5, 5]]
    *shown, title = (text.get_text() for text in groups.texts)
    assert shown == ["75% of records", "25% of records"]
    assert "each record draws its group" in title


def test_what_a_score_has_to_reach_and_the_probes_are_drawn() -> None:
    trace = policy_trace(ROWS, threshold=0.85)
    assert trace["threshold"].isna().tolist() == [True, False, False, False, False], "nothing was compared"
    groups, scores = draw_policy_trace(trace, "cosine", end_s=20.0).axes
    (dashed,) = (line for line in scores.lines if line.get_label() == "threshold")
    assert np.asarray(dashed.get_xydata()).tolist() == [[6.5, 0.85], [12.5, 0.85], [20.0, 0.85]]
    assert len(groups.patches) == 1, "all of the probes' time passed before the first decision"


def test_of_many_candidates_a_few_are_drawn_beside_what_training_takes() -> None:
    supply = {str(group): 1000.0 / group for group in range(1, 11)}
    trace = policy_trace([decision(2, 5, supply, "images_per_s")])
    assert trace["candidate"].tolist() == list(range(1, 11))
    assert set(trace["threshold"]) == {20 / 4.0}, "20 images in 4 s of training"
    _, scores = draw_policy_trace(trace, "balanced", end_s=10.0).axes
    assert [line.get_label() for line in scores.lines] == ["1", "2", "5", "10", "taken by training"]
