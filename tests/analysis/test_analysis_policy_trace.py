"""A policy's decisions as a table and as a figure."""

from typing import Any

import pandas as pd
import pytest

from pcr_exp.analysis.figures.policy_trace import draw_policy_trace
from pcr_exp.analysis.policy_trace import TRACE_COLUMNS, policy_trace


def decision(epoch: int, group: int, scores: dict[str, float], measure: str = "cosine") -> dict[str, Any]:
    return {
        "kind": "policy",
        "epoch": epoch,
        "step": 10 * epoch,
        "train_s": 2.0 * epoch,
        "wait_s": 1.0 * epoch,
        "probe_s": 0.5,
        "probe_bytes": 2**20,
        "record_bytes": 250 * epoch,
        "group": group,
        "measure": measure,
        "scores": scores,
        "bytes_saved": 750 * epoch,
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
    assert trace["saved_share"].tolist() == [0, 0.75, 0.75, 0.75, 0.75]
    assert trace.iloc[:1][["candidate", "score"]].isna().all(axis=None)


def test_without_decisions_the_trace_is_empty() -> None:
    assert policy_trace([{"kind": "train"}]).empty


def test_the_figure_draws_groups_and_scores() -> None:
    groups, scores = draw_policy_trace(policy_trace(ROWS), "a run", "cosine", end_s=20.0).axes
    steps = groups.lines[0].get_xydata()
    assert steps.tolist() == [[0.5, 10], [6.5, 5], [12.5, 1], [20.0, 1]]
    assert [line.get_ydata().tolist() for line in scores.lines] == [[0.2, 0.85], [0.9, 0.95]]
    assert scores.get_ylabel() == "gradient cosine to all groups"
    assert "n = 2 comparisons; probes: 0.5 s, 1 MiB" in [text.get_text() for text in scores.texts]
    assert groups.get_xlim()[1] == pytest.approx(20)


def test_without_scores_there_is_one_panel() -> None:
    trace = policy_trace([decision(0, 1, {}, "given"), decision(3, 2, {}, "given")])
    (groups,) = draw_policy_trace(trace, "a run", "schedule", end_s=12.0).axes
    assert isinstance(trace, pd.DataFrame)
    assert len(groups.lines[0].get_xydata()) == 3
