"""Table and figure of runs trained at a group and tested in full and at that group; synthetic rows."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from made_runs import written

from experiments.pcr.learning import (
    DEPLOYMENT_COLUMNS,
    deployment_table,
    deployment_to_markdown,
    draw_differences,
    other_metrics,
    write_deployment,
)
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import read_runs

MakeRun = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("light_figures")


def evaluate_twice(root: Path, make_run: MakeRun, scan: str, seed: int, full: float, same: float) -> None:
    path = make_run(root, scan, seed=seed, top1=(full,)) / "rows.jsonl"
    *before, last = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [*before, {**last, "eval_group": "full"}, {**last, "eval_group": "same", "val_top1": same}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def root(tmp_path: Path, make_run: MakeRun) -> Path:
    for seed, shift in ((0, 0.0), (1, 0.02)):
        evaluate_twice(tmp_path, make_run, "baseline", seed, 0.9, 0.9)
        evaluate_twice(tmp_path, make_run, "group_1", seed, 0.5 + shift, 0.8 + shift)
    return tmp_path


def test_every_level_has_a_row_for_each_way_of_testing(root: Path) -> None:
    table = deployment_table(run_frame(read_runs(root)))
    assert list(table.columns) == DEPLOYMENT_COLUMNS
    assert list(zip(table["scan"], table["tested_at"], strict=True)) == [
        *(("baseline", "full"), ("baseline", "same"), ("group_1", "full"), ("group_1", "same"))
    ]
    first = table[table["scan"] == "group_1"].set_index("tested_at")
    assert (table["n"] == 2).all()
    assert first["score_mean"].to_dict() == pytest.approx({"full": 0.51, "same": 0.81})
    assert first["difference_mean"].to_dict() == pytest.approx({"full": -0.39, "same": -0.09})
    assert first.loc["same", "difference_ci95"] == pytest.approx(12.706 * 0.01, rel=1e-3)


def test_the_page_has_both_beside_each_other(root: Path) -> None:
    text = deployment_to_markdown(deployment_table(run_frame(read_runs(root))))
    assert (
        "| trained at | n | tested in full | difference in full | tested at the same | difference at" in text
    )
    assert "| baseline | 2 | 90.0% | - | 90.0% | +0.0 ± 0 |" in text
    assert (
        "| group 1 | 2 | 51.0% (50.0% to 52.0%) | -39.0 ± 12.7 | 81.0% (80.0% to 82.0%) | -9.0 ± 12.7 |"
        in text
    )


def test_other_metrics_have_tables_of_their_own(root: Path, tmp_path: Path) -> None:
    for path in sorted(root.glob("*/rows.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        more = [row | ({"val_auc": row["val_top1"] / 2} if row["kind"] == "eval" else {}) for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in more))
    frame = run_frame(read_runs(root))
    assert other_metrics(frame) == ["auc"]
    by_auc = deployment_table(frame, "auc").set_index(["scan", "tested_at"])
    assert by_auc.loc[("group_1", "full"), "difference_mean"] == pytest.approx(-0.39 / 2)
    tables, _ = written(write_deployment, frame, tmp_path)
    assert [path.name for path in tables] == [
        f"deployment{which}.{ending}" for which in ("", "_auc") for ending in ("csv", "md")
    ]
    assert "auc_mean" in tables[2].read_text() and "Final validation AUC" in tables[3].read_text()


def test_without_such_evaluations_there_is_no_table(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "baseline")
    assert written(write_deployment, run_frame(read_runs(tmp_path)), tmp_path) == ([], [])


def test_its_files_name_the_headline(root: Path) -> None:
    (csv, page), figures = written(write_deployment, run_frame(read_runs(root)), root)
    assert "top1_mean" in pd.read_csv(csv).columns and page.exists()
    assert [path.name for path in figures] == [f"differences.{end}" for end in ("pdf", "png", "csv")]


def test_a_level_is_a_line_with_the_intervals_of_its_differences(root: Path, make_run: MakeRun) -> None:
    evaluate_twice(root, make_run, "group_5", 0, 0.9, 0.9)
    table = deployment_table(run_frame(read_runs(root)))
    (ax,) = draw_differences(table).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["group 1", "group 5 (n = 1)"]
    full = next(bars for bars in ax.containers if bars.get_label() == "tested in full")
    assert full.lines[0].get_xdata() == pytest.approx([-39])
    ci95 = (
        100 * table[(table["scan"] == "group_1") & (table["tested_at"] == "full")]["difference_ci95"].item()
    )
    (ends,) = full.lines[2][0].get_segments()
    assert ends[:, 0] == pytest.approx([-39 - ci95, -39 + ci95])
    legend = ax.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["tested in full", "tested as read in training"]


def test_nothing_is_drawn_where_nothing_stands_beside_a_baseline(tmp_path: Path, make_run: MakeRun) -> None:
    evaluate_twice(tmp_path, make_run, "baseline", 0, 0.9, 0.9)
    (csv, _), figures = written(write_deployment, run_frame(read_runs(tmp_path)), tmp_path)
    assert len(pd.read_csv(csv)) == 2 and figures == []
