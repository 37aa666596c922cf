"""The Pareto front of accuracy against bytes, on synthetic runs of levels and a policy with a known front."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_runs import written
from matplotlib.lines import Line2D

from pcr_exp.analysis.figure import HIGHEST_SHARE
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.front import FRONT_COLUMNS, draw_front, front_table, write_front
from pcr_exp.analysis.marks import chance_levels
from pcr_exp.analysis.runs import read_runs

MakeRun = Callable[..., Path]
LEVELS = {
    "baseline": (400_000, 0.90, 0.90),
    "group_1": (20_000, 0.50, 0.80),
    "group_5": (200_000, 0.70, 0.78),
    "schedule": (110_000, 0.88, 0.88),
}
"""By scan: bytes read by a run, and its scores tested in full and at the group trained on."""


@pytest.fixture
def root(tmp_path: Path, make_run: MakeRun) -> Path:
    for scan, (num_bytes, full, same) in LEVELS.items():
        for seed, shift in ((0, 0.0), (1, 0.02)):
            columns = {"record_bytes": num_bytes - 1_000, "probe_bytes": 1_000}
            run = make_run(tmp_path, scan, seed=seed, top1=(full + shift,), columns=columns)
            path = run / "rows.jsonl"
            *before, last = [json.loads(line) for line in path.read_text().splitlines()]
            rows = [*before, {**last, "eval_group": "full"}]
            rows.append({**last, "eval_group": "same", "val_top1": same + shift})
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_front_is_what_nothing_cheaper_reaches(root: Path) -> None:
    table = front_table(run_frame(read_runs(root)))
    assert list(table.columns) == FRONT_COLUMNS and (table["n"] == 2).all()
    by_recipe = table.set_index("recipe")
    full, same = (by_recipe[by_recipe["tested_at"] == tested_at] for tested_at in ("full", "same"))
    assert full["on_front"].to_dict() == {
        "group_1": True,
        "schedule (groups=[1,5], milestones=[1])": True,
        "group_5": False,
        "baseline": True,
    }
    assert same["read_bytes_mean"].to_dict() == full["read_bytes_mean"].to_dict()
    assert full.loc["group_1", "score_mean"] == pytest.approx(0.51)
    assert same.loc["group_1", "score_mean"] == pytest.approx(0.81)
    assert full.loc["group_1", "score_ci95"] == pytest.approx(12.706 * 0.01, rel=1e-3)
    assert full.loc["group_1", "difference_mean"] == pytest.approx(-0.4)
    assert same.loc["group_1", "difference_mean"] == pytest.approx(-0.1), "to the baseline tested in full"
    assert full.loc["group_1", "difference_ci95"] == pytest.approx(0), "by seed"
    assert full.loc["group_1", "read_bytes_mean"] == 20_000, "probes are bytes"
    assert full.loc["group_1", "image_bytes_mean"] == pytest.approx(20_000 / 64)


def test_both_ways_of_testing_are_panels_with_the_front_in_each(root: Path) -> None:
    table = front_table(run_frame(read_runs(root)))
    full, same = draw_front(table).axes
    assert np.asarray(full.lines[0].get_xydata()).tolist() == pytest.approx(
        np.array([[20_000, -40], [110_000, -2], [400_000, 0]])
    )
    assert full.get_ylim() == same.get_ylim()
    assert full.get_ylabel() == "points of top-1\nagainst the baseline in full"
    assert {"-1", "+1"} <= {tick.get_text() for tick in full.get_yticklabels()}, "one point decides"
    assert "tested in full" in [text.get_text() for text in full.texts]
    assert len(full.containers) == len(LEVELS)


def test_names_below_have_room_and_so_has_the_lowest_line_s(root: Path) -> None:
    table = front_table(run_frame(read_runs(root))).assign(difference_mean=np.nan)
    for recipes, columns in ((table["recipe"], 2), (table["recipe"] + 43 * "x", 1)):
        for ax in draw_front(table.assign(recipe=recipes)).axes:
            assert ax.get_legend()._ncols == columns  # matplotlib has no public accessor
            assert ax.get_ylim()[0] <= min(guess.at for guess in chance_levels(table)) - 0.07 + 1e-9


def test_two_settings_of_a_policy_are_told_apart(root: Path) -> None:
    table = front_table(run_frame(read_runs(root)))
    of_policy = table["recipe"].str.startswith("schedule")
    again = table[of_policy].assign(recipe="schedule of others", score_mean=0.6)
    for ax in draw_front(pd.concat([table, again])).axes:
        looks = [(mark.get_color(), mark.get_marker(), mark.get_fillstyle()) for mark, *_ in ax.containers]
        assert len(set(looks)) == len(looks) == len(LEVELS) + 1
        assert [fill for *_, fill in looks].count("none") == 1


def test_a_policy_that_read_what_a_level_reads_is_not_hidden_by_it(root: Path) -> None:
    table = front_table(run_frame(read_runs(root)))
    for ax in draw_front(table).axes:
        above = {bars.get_label(): bars[0].get_zorder() for bars in ax.containers}
        policies = {name for name in above if name.startswith("schedule")}
        assert min(above[name] for name in policies) > max(above[name] for name in above.keys() - policies)


def test_bars_of_two_seeds_go_on_where_shares_end(root: Path) -> None:
    table = front_table(run_frame(read_runs(root)))
    for ax in draw_front(table.assign(score_ci95=0.9, difference_mean=np.nan)).axes:
        assert ax.get_ylim()[1] == HIGHEST_SHARE
        legend = ax.get_legend()
        assert legend is not None and [text.get_text() for text in legend.get_texts()] == [
            mark.get_label() for mark in ax.containers
        ]
        assert all(isinstance(handle, Line2D) for handle in legend.legend_handles), "marks, and no bars"


def test_input_sizes_are_part_of_a_recipe(root: Path) -> None:
    runs = [run for run in read_runs(root) if run.manifest.seed == 0]
    for run in runs:
        if run.config["scan"]["name"] == "schedule":
            run.config["training"]["input_sizes"] = [32, 64]
    assert "schedule (groups=[1,5], milestones=[1]), inputs 32, 64 px" in set(
        front_table(run_frame(runs))["recipe"]
    )


@pytest.mark.usefixtures("light_figures")
def test_it_is_written_where_a_policy_was_trained_beside_something_else(root: Path, tmp_path: Path) -> None:
    _, figures = written(write_front, run_frame(read_runs(root)), tmp_path / "out")
    assert [path.name for path in figures] == [f"accuracy_vs_bytes.{end}" for end in ("pdf", "png", "csv")]
    assert "top1_mean" in pd.read_csv(figures[-1]).columns
    runs = read_runs(root)
    static = [run for run in runs if run.config["scan"]["name"] != "schedule"]
    alone = [run for run in runs if run.config["scan"]["name"] == "schedule"]
    for nothing_beside in (static, alone, []):
        assert written(write_front, run_frame(nothing_beside), tmp_path) == ([], [])


def test_scores_of_different_metrics_are_not_ranked_together(root: Path) -> None:
    frame = run_frame(read_runs(root))
    frame.loc[frame["scan"] == "group_5", "headline"] = "balanced_accuracy"
    assert "group_5" not in set(front_table(frame)["recipe"])
