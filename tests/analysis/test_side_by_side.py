"""Cost and score of each scan level side by side: dots, means, and facts that fit into the figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drawn import cut_markers
from matplotlib.axes import Axes

from pcr_exp.analysis.figure import panel_title, panels
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.side_by_side import draw_side_by_side, with_totals


def texts(ax: Axes) -> str:
    return "\n".join(text.get_text() for text in ax.texts)


def test_facts_are_broken_to_the_panels_that_they_run_across() -> None:
    facts = ", ".join(["Intel(R) Xeon(R) Processor, 2 cores, shared with others"] * 3)
    widest = []
    for across in (1, 2):
        _, axes = panels(2)
        panel_title(axes[0], "data", facts, across=across)
        lines = axes[0].texts[-1].get_text().split("\n")
        assert " ".join(lines) == facts
        widest.append(max(map(len, lines)))
    assert 20 < widest[0] < widest[1] < len(facts)


def test_side_by_side_has_a_line_per_level_and_says_who_did_not_arrive(
    tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    for seed in (0, 1):
        make_run(tmp_path, "baseline", seed=seed, epoch_s=40)
        make_run(tmp_path, "schedule", seed=seed, top1=(0.2, 0.5, 0.6 - 0.1 * seed))
    totals = with_totals(run_frame(read_runs(tmp_path)))
    target, seconds, mib, top1 = draw_side_by_side(totals).axes
    names = [label.get_text() for label in target.get_yticklabels()]
    assert names == ["baseline", "schedule"]
    assert "target 60%" in texts(target)
    dots = [np.asarray(line.get_xydata()).tolist() for line in target.lines]
    assert dots == [[[80, 0], [80, 0]], [[80, -0.36], [80, 0.36]], [[30, 1]]], "no mean of the lucky ones"
    assert "1 of 2 did not" in texts(target)
    (baseline, _, schedule, _) = [np.asarray(line.get_xdata()).tolist() for line in seconds.lines]
    assert (baseline, schedule) == ([120, 120], [30, 30])
    assert np.asarray(mib.lines[0].get_xdata()) == pytest.approx(3 * 64_000 / 2**20)
    assert with_totals(run_frame(read_runs(tmp_path)).assign(probe_bytes=2**20))["record_mib"].iloc[0] == (
        pytest.approx(3 * 64_000 / 2**20 + 1)
    ), "a policy's probes are bytes too"
    frame = run_frame(read_runs(tmp_path))
    alone = frame["seed"] == 0
    shared = frame.assign(
        timing_excluded_because=np.where(alone, "", "shared"),
        time_to_target_s=frame["time_to_target_s"].where(alone),
    )
    assert "not said" in texts(draw_side_by_side(with_totals(shared)).axes[1])
    silent = with_totals(frame.assign(timing_excluded_because="shared", time_to_target_s=None))
    assert len(draw_side_by_side(silent).axes) == 2, "no empty panels"
    assert np.asarray(top1.lines[2].get_xdata()) == pytest.approx([-30, -40]), "of the same seed, in points"


def test_differences_to_the_baseline_have_intervals_and_a_scale_of_points(
    tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    for seed in (0, 1):
        make_run(tmp_path, "baseline", seed=seed, top1=(0.90 + 0.1 * seed,))
        make_run(tmp_path, "group_2", seed=seed, top1=(0.89 + 0.1 * seed - 0.002 * seed,))
        make_run(tmp_path, "group_1", seed=seed, top1=(0.40,))
    totals = with_totals(run_frame(read_runs(tmp_path)))
    of_scan = totals.sort_values("seed").groupby("scan")["difference_points"].apply(list)
    assert of_scan["group_2"] == pytest.approx([-1.0, -1.2]) and of_scan["baseline"] == [0, 0]
    ax = draw_side_by_side(totals).axes[-1]
    assert ax.get_xlabel() == "points of top-1\nagainst the baseline" and "95.0%" in texts(ax)
    point, ten = (np.ptp(ax.transData.transform([(0, 0), (-points, 0)])[:, 0]) for points in (1, 10))
    assert point > ten / 6, "a point shows, however much another level loses"
    (interval,) = [
        [float(x) for x in line.get_segments()[0][:, 0]]
        for line in ax.collections
        if line.get_segments()[0][0][1] == 2
    ]
    assert interval == pytest.approx([-1.1 - 12.706 * 0.1, -1.1 + 12.706 * 0.1], rel=1e-3)
    alone = with_totals(run_frame(read_runs(tmp_path)).query("scan != 'baseline' or seed == 0"))
    assert texts(draw_side_by_side(alone).axes[-1]) == "90.0%", "of the seed that the baseline has"
    assert not [label for one in draw_side_by_side(totals).axes for label in cut_markers(one)]


def test_without_a_baseline_scores_are_shown(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, "group_2")
    make_run(tmp_path, "group_5")
    ax = draw_side_by_side(with_totals(run_frame(read_runs(tmp_path)))).axes[-1]
    assert ax.get_xlabel() == "last validation top-1"
