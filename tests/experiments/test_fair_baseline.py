"""A search chooses a learning rate and a crop scale, from scores on the tune split alone."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made_runs import written

from experiments.pcr.learning import fair_baseline_table, write_fair_baseline
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import read_runs

# learning rate: top-1 and loss on the tune split after the last epoch
FOUND = {0.003: (0.70, 0.9), 0.01: (0.80, 0.8), 0.03: (0.80, 0.6), 0.1: (0.50, 2.0)}


def make_search(root: Path, make_run: Any, split: str = "tune", scan: str = "baseline") -> None:
    for rate, (top1, loss) in FOUND.items():
        folder = make_run(root, scan, top1=(0.9, top1), learning_rate=rate)
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace("eval_split: val", f"eval_split: {split}"))
        path = folder / "rows.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows[-1]["val_loss"] = loss
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_best_last_epoch_on_the_tune_split_is_chosen(tmp_path: Path, make_run: Any) -> None:
    make_search(tmp_path, make_run)
    table = fair_baseline_table(run_frame(read_runs(tmp_path))).set_index("learning_rate")
    assert len(table) == 4
    assert table.index[table["chosen"]].tolist() == [0.03], "of equal scores the lower loss"
    assert table["target_score"].unique() == pytest.approx(0.78)
    assert (table["n"] == 1).all() and (table["image_size_px"] == 64).all()


@pytest.mark.parametrize(("split", "scan"), [("val", "baseline"), ("tune", "group_5")])
def test_other_runs_choose_nothing(tmp_path: Path, make_run: Any, split: str, scan: str) -> None:
    make_search(tmp_path, make_run, split, scan)
    runs = read_runs(tmp_path)
    assert len(runs) == 4 and fair_baseline_table(run_frame(runs)).empty
    assert written(write_fair_baseline, run_frame(runs), tmp_path / "out") == ([], [])


def test_the_page_marks_what_was_chosen(tmp_path: Path, make_run: Any) -> None:
    make_search(tmp_path / "runs", make_run)
    (csv, page), _ = written(write_fair_baseline, run_frame(read_runs(tmp_path / "runs")), tmp_path)
    text = page.read_text()
    assert "| **0.03** | **0.08** | 1 | **80.0%** | 0.600 |" in text and "target: 78.0%" in text
    assert "final_top1" in csv.read_text().splitlines()[0]


def test_searches_by_different_metrics_or_epochs_choose_for_themselves(tmp_path: Path, make_run: Any) -> None:
    make_search(tmp_path, make_run)
    runs = run_frame(read_runs(tmp_path))
    both = fair_baseline_table(pd.concat([runs, runs.assign(headline="balanced_accuracy")]))
    assert len(both) == 8 and both.groupby("headline")["chosen"].sum().tolist() == [1, 1]


def test_runs_that_differ_in_other_settings_are_other_searches(tmp_path: Path, make_run: Any) -> None:
    make_search(tmp_path / "a", make_run)
    make_search(tmp_path / "b", make_run)
    for config in (tmp_path / "b").rglob("config.yaml"):
        config.write_text(config.read_text().replace("weight_decay: 0.0001", "weight_decay: 0.5"))
    runs = pd.concat([run_frame(read_runs(tmp_path / name)) for name in "ab"], ignore_index=True)
    table = fair_baseline_table(runs)
    assert len(table) == 8 and table.groupby("setting")["chosen"].sum().tolist() == [1, 1]
    (_, page), _ = written(write_fair_baseline, runs, tmp_path)
    titles = [line for line in page.read_text().splitlines() if line.startswith("###")]
    assert "weight_decay" in titles[0] and "weight_decay" in titles[1] and titles[0] != titles[1]
