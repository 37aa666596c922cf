"""Committed measurements and predictions, of no training: every table follows from its rows or its plan."""

from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from composing import compose

from pcr_exp.analysis.model.plan import predict, worker_counts
from pcr_exp.analysis.model.validation import TOLERANCE as RATE_TOLERANCE
from pcr_exp.analysis.model.validation import compare as compare_rates
from pcr_exp.analysis.model.validation import load_validation
from pcr_exp.measuring.quality import summarise_crops, summarise_quality

RESULTS = Path(__file__).parents[1] / "results"
QUALITY = RESULTS / "quality"
DECODE_MODES = RESULTS / "decode_modes"
MODEL = RESULTS / "throughput_model"


@pytest.mark.parametrize("rows", sorted(QUALITY.rglob("quality.csv")), ids=lambda rows: rows.parent.name)
def test_quality_summaries_follow_from_their_rows(rows: Path) -> None:
    summary = pd.read_csv(rows.with_name("quality_summary.csv"))
    pd.testing.assert_frame_equal(summary, summarise_quality(pd.read_csv(rows)), check_dtype=False)


@pytest.mark.parametrize("rows", sorted(DECODE_MODES.glob("*/decode_modes.csv")), ids=lambda p: p.parent.name)
def test_crops_of_decode_modes_are_summarised_as_measured(rows: Path) -> None:
    summary = pd.read_csv(rows.with_name("decode_modes_summary.csv"))
    pd.testing.assert_frame_equal(summary, summarise_crops(pd.read_csv(rows)), check_dtype=False)


@pytest.mark.parametrize("name", ["paper_cluster", "laptop", "object_store", "other_cloud"])
def test_predictions_follow_from_their_plan(name: str) -> None:
    plan = compose("throughput", f"plan={name}").plan
    assert plan is not None
    for file, workers in (
        ("predictions.csv", [plan.workers]),
        ("workers.csv", worker_counts(plan.max_workers)),
    ):
        rebuilt = pd.read_csv(StringIO(predict(plan, workers).to_csv(index=False)))
        pd.testing.assert_frame_equal(pd.read_csv(MODEL / name / file), rebuilt)


def test_the_throughput_model_is_as_right_as_it_is_said_to_be() -> None:
    """Where bandwidth, reads in flight or the model are the limit, every cell is within 5 % of measured."""
    measured = load_validation(MODEL / "this_machine")
    assert all(entry["git_dirty"] is False for entry in measured.meta["measurements"])
    cells = compare_rates(measured.rows, measured.meta["num_cores"])
    committed = pd.read_csv(MODEL / "this_machine" / "predicted_vs_measured_rates.csv")
    pd.testing.assert_frame_equal(committed, pd.read_csv(StringIO(cells.to_csv(index=False))))
    assert set(cells["num_processes"]) == {1, 2, 4}
    tested = cells[~cells["is_calibration"] & (cells["bound"] != "decode")]
    assert len(tested) >= 50
    assert tested["error"].abs().max() <= RATE_TOLERANCE
