"""Comparisons of runs that differ in one setting take differences seed by seed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcr_exp.analysis.comparison import (
    compare_setting,
    comparison_to_markdown,
    draw_comparison,
)
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import Run, read_runs
from pcr_exp.errors import RunError


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> list[Run]:
    """Two seeds with each of two decode modes; `scaled` is better by 0.1 and by 0.2."""
    root = tmp_path_factory.mktemp("modes")
    found = []
    for mode, gains in (("libjpeg", (0.0, 0.0)), ("scaled", (0.1, 0.2))):
        for seed, gain in enumerate(gains):
            make_run(root / mode, "group_1", seed=seed, top1=(0.9, 0.3 + seed / 10 + gain))
        for run in read_runs(root / mode):
            config = {**run.config, "loader": {**run.config["loader"], "decode": mode}}
            named = f"{run.manifest.run_id}-{mode}"
            manifest = replace(run.manifest, run_id=named, majority_share=0.125)
            found.append(replace(run, config=config, manifest=manifest))
    return found


def test_differences_are_paired_by_seed_and_of_the_finished_model(runs: list[Run]) -> None:
    table = compare_setting(run_frame(runs), "loader.decode", "libjpeg")
    assert list(table["value"]) == ["libjpeg", "scaled"] and list(table["n"]) == [2, 2]
    scaled = table.iloc[1]
    assert scaled["score_mean"] == pytest.approx(0.5) and scaled["score_max"] == pytest.approx(0.6)
    assert scaled["difference_mean"] == pytest.approx(0.15)
    assert scaled["difference_ci95"] == pytest.approx(12.7062 * 0.05, rel=1e-4), "Student's t, two seeds"


def test_the_table_for_people_says_points_and_spread(runs: list[Run]) -> None:
    text = comparison_to_markdown(
        compare_setting(run_frame(runs), "loader.decode", "libjpeg"), "loader.decode", "libjpeg"
    )
    assert "| group 1 | libjpeg | 2 | 35.0% (30.0% to 40.0%) | 12.5% | - |" in text
    assert "| group 1 | scaled | 2 | 50.0% (40.0% to 60.0%) | 12.5% | +15.0 ± 63.5 |" in text


def test_a_seed_without_its_pair_counts_for_the_mean_only(runs: list[Run]) -> None:
    table = compare_setting(run_frame(runs[1:]), "loader.decode", "libjpeg")
    assert list(table["n"]) == [1, 2]
    assert table.iloc[1]["difference_mean"] == pytest.approx(0.2)
    text = comparison_to_markdown(table, "loader.decode", "libjpeg")
    assert "| 1 † |" in text and "| +20.0 † |" in text and "† n = 1" in text


def test_a_group_is_compared_by_name_and_by_what_else_differs(runs: list[Run]) -> None:
    modes = [
        {"name": name, "error_model": model}
        for name, model in (("none", "exact"), ("error_bounded", "exact"), ("error_bounded", "paper"))
    ]
    changed = [
        replace(run, config={**runs[0].config, "activations": mode})
        for mode, run in zip(modes, [runs[0], runs[0], runs[2]], strict=True)
    ]
    table = compare_setting(run_frame(changed), "activations", "none")
    assert list(table["value"]) == [
        "none",
        "error_bounded, error_model=exact",
        "error_bounded, error_model=paper",
    ]
    assert table["difference_mean"].tolist() == pytest.approx([0, 0, 0.1])


def test_an_unknown_key_is_refused(runs: list[Run]) -> None:
    with pytest.raises(RunError, match=r"compare=loader.speed: the configuration of .* has no such key"):
        compare_setting(run_frame(runs), "loader.speed", "libjpeg")


@pytest.mark.parametrize("some", [True, False])
def test_a_reference_that_no_run_has_is_refused(some: bool, runs: list[Run]) -> None:
    with pytest.raises(RunError, match="reference=unsmoothed: no run has this value; found"):
        compare_setting(run_frame(runs if some else []), "loader.decode", "unsmoothed")


@pytest.mark.parametrize("key", ["scan", "loader.decode"])
def test_runs_without_a_pair_are_refused(runs: list[Run], key: str, tmp_path: Path, make_run: Any) -> None:
    """Values of a key that decides the panel, or of levels and seeds of their own, have no reference."""
    make_run(tmp_path, "baseline", seed=7)
    frame = run_frame([*runs[:2], *read_runs(tmp_path)])
    reference = {"scan": "baseline", "loader.decode": "libjpeg"}[key]
    if key == "loader.decode":
        assert frame["config"].iloc[2]["loader"]["decode"] != reference
    with pytest.raises(RunError, match=rf"compare={key}: nothing to compare: runs with {reference} differ"):
        compare_setting(frame, key, reference)


def test_runs_that_differ_in_something_else_are_refused(runs: list[Run]) -> None:
    with pytest.raises(RunError, match=r"runs also differ in other settings: .* a folder of their own"):
        other = {**runs[0].config, "training": {**runs[0].config["training"], "epochs": 7}}
        compare_setting(run_frame([*runs, replace(runs[0], config=other)]), "loader.decode", "libjpeg")


def test_values_that_differ_in_something_else_as_well_are_refused(runs: list[Run]) -> None:
    """Each value and seed is there once, but the other setting may cause the effect."""

    def longer(run: Run) -> Run:
        return replace(run, config={**run.config, "training": {**run.config["training"], "epochs": 7}})

    both = [longer(run) if run.config["loader"]["decode"] == "scaled" else run for run in runs]
    with pytest.raises(RunError, match=r"runs also differ in other settings: .*-libjpeg, .*-scaled"):
        compare_setting(run_frame(both), "loader.decode", "libjpeg")


def test_a_run_made_again_with_other_workers_counts_once(runs: list[Run]) -> None:
    again = {**runs[0].config, "loader": {**runs[0].config["loader"], "num_workers": 7}}
    table = compare_setting(run_frame([*runs, replace(runs[0], config=again)]), "loader.decode", "libjpeg")
    assert list(table["n"]) == [2, 2]


def test_the_figure_has_a_line_per_value_with_its_interval(runs: list[Run]) -> None:
    table = compare_setting(run_frame(runs), "loader.decode", "libjpeg")
    (ax,) = draw_comparison(table, "libjpeg").axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["scaled"]
    (row,) = table[table["value"] == "scaled"].to_dict("records")
    (drawn,) = ax.containers
    assert drawn.lines[0].get_xdata() == pytest.approx([100 * row["difference_mean"]])
    (ends,) = drawn.lines[2][0].get_segments()
    assert np.ptp(ends[:, 0]) == pytest.approx(200 * row["difference_ci95"])
    assert "against libjpeg, same seed" in ax.get_xlabel()
