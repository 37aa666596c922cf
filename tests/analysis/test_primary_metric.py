"""Frames call the primary metric `score`; files, tables and figures use its own name."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from pcr_exp.analysis.primary_metric import as_written
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.reporting_rules import time_to_excluded_because
from pcr_exp.config.training import TaskConfig

pytestmark = pytest.mark.usefixtures("light_figures")


def test_tables_and_figures_of_a_balanced_run_are_about_balanced_accuracy(
    tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    """Top-1 reaches the target after two epochs, balanced accuracy never does."""
    for scan in ("baseline", "group_1"):
        path = make_run(tmp_path / "runs", scan, more={"task": TaskConfig(name="balanced")}) / "rows.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        recalls = {"val_balanced_accuracy": 0.4, "val_recall": {"a": 0.8, "b": 0.0}}
        rows = [row | recalls if row["kind"] == "eval" else row for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out"
    write_report(tmp_path / "runs", tmp_path / "none", out)
    runs = pd.read_csv(out / "runs.csv")
    assert runs["final_balanced_accuracy"].tolist() == [0.4, 0.4]
    assert runs["target_balanced_accuracy"].tolist() == [0.5, 0.5]
    assert runs["epochs_to_target"].isna().all() and "final_top1" not in runs
    page = (out / "summary.md").read_text()
    assert "last balanced accuracy" in page and "12.5%" in page, "one in eight classes is guessing"
    assert "top-1" not in page


@pytest.mark.parametrize(
    ("headline", "target", "guessed"),
    [("balanced_accuracy", 0.14, "14.3%"), ("auc", 0.5, "50.0%")],
)
def test_a_target_that_guessing_reaches_is_refused_whatever_the_headline(
    headline: str, target: float, guessed: str
) -> None:
    assert f"reached by guessing ({guessed})" in time_to_excluded_because(target, 0.67, 7, headline)
    assert time_to_excluded_because(0.6, 0.67, 7, headline) == ""
    assert "most frequent class" in time_to_excluded_because(0.6, 0.67, 7)


def test_files_of_one_headline_have_its_name_and_those_of_several_say_which() -> None:
    frame = pd.DataFrame({"final_score_mean": [0.5, 0.6], "scores": 1, "headline": ["auc", "auc"]})
    assert list(as_written(frame)) == ["final_auc_mean", "scores"]
    mixed = frame.assign(headline=["auc", "top1"])
    assert list(as_written(mixed)) == list(mixed)
