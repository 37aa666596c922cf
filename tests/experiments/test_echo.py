"""Echoed runs compared: fresh samples to the target, and the figures that can be drawn."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_runs import written
from matplotlib.axes import Axes

from experiments.echoing.figures import (
    bound_ms,
    dashes_of,
    draw_echo_time,
    draw_fresh_against,
    draw_fresh_to_target,
    draw_score_against_bytes,
    draw_score_at_budget,
    style_of,
)
from experiments.echoing.frame import MEASURES, TIMES, echo_frame, tuned
from experiments.echoing.page import byte_curves, echo_to_markdown, write_echo_report
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import read_runs
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.loading.echo.variants import BatchEchoConfig, ExampleBeforeConfig

pytestmark = pytest.mark.usefixtures("light_figures")
MakeRun = Callable[..., Path]
NONE = EchoConfig()


def before(factor: float = 2, buffer: int = 1, groups: tuple[int, ...] = ()) -> EchoConfig:
    return ExampleBeforeConfig(factor=factor, buffer=buffer, repeat_groups=list(groups))


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory, make_run: MakeRun) -> Path:
    """Baseline reaches 60 % after 3 epochs of 64, example echoing after 1, one batch echoing seed never."""
    root = tmp_path_factory.mktemp("variants")
    for seed in (0, 1):
        make_run(root, "group_5", seed=seed, echo=NONE, top1=(0.3, 0.5, 0.9))
        make_run(root, "group_5", seed=seed, echo=before(), top1=(0.6, 0.7, 0.9))
        batch = BatchEchoConfig(factor=2)
        make_run(root, "group_5", seed=seed, echo=batch, top1=(0.3, 0.6 - seed / 2, 0.7 - seed / 2))
    return root


def texts(ax: Axes) -> str:
    ticks = [label.get_text() for label in ax.get_xticklabels()]
    return "\n".join([ax.get_title(loc="left"), *(text.get_text() for text in ax.texts), *ticks])


def test_a_run_says_what_it_echoed_and_what_that_reached(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_5", echo=before(2.5, 64), top1=(0.3, 0.6, 0.9))
    (row,) = echo_frame(run_frame(read_runs(tmp_path))).to_dict("records")
    assert (row["variant"], row["factor"], row["buffer"], row["repeat_groups"]) == (
        "example_before",
        2.5,
        64,
        "",
    )
    assert (row["fresh"], row["fresh_to_target"], row["bytes_to_target"]) == (192, 128, 128_000 * 5)
    assert (row["time_to_target_s"], row["s_per_fresh"]) == (20, 30 / 192)
    assert (row["upstream_s_per_sample"], row["upstream_ratio"]) == (0.04, 4.0)


def test_runs_from_before_echo_are_a_baseline_without_a_ratio(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_5", top1=(0.3,))
    make_run(tmp_path, "group_5", echo=before(1, 64), seed=1)
    first, second = echo_frame(run_frame(read_runs(tmp_path))).sort_values("seed").to_dict("records")
    assert first["variant"] == second["variant"] == "baseline"
    assert (first["buffer"], second["buffer"]) == (1, 64)
    assert np.isnan(first["upstream_ratio"]) and np.isnan(first["fresh_to_target"])
    assert first["setting"] == second["setting"]


def test_the_best_learning_rate_is_the_one_that_most_seeds_reach_the_target_with(
    tmp_path: Path, make_run: MakeRun
) -> None:
    # By learning rate: fast but unreliable; slower; slowest, and the most accurate.
    accuracies = {0.4: (0.6, 0.6, 0.6), 0.2: (0.3, 0.6, 0.6), 0.1: (0.3, 0.3, 0.95)}
    for rate, top1 in accuracies.items():
        for seed in (0, 1):
            unlucky = rate == 0.4 and seed == 1
            make_run(
                tmp_path,
                "group_5",
                seed=seed,
                echo=before(),
                learning_rate=rate,
                top1=(0.1,) * 3 if unlucky else top1,
            )
    frame = echo_frame(run_frame(read_runs(tmp_path)))
    (fewest,) = tuned(frame, "fresh_to_target").to_dict("records")
    assert (fewest["learning_rate"], fewest["num_rates"], fewest["n"], fewest["num_reached"]) == (
        0.2,
        3,
        2,
        2,
    )
    assert (fewest["fresh_to_target_mean"], fewest["fresh_to_target_max"]) == (128, 128)
    (best,) = tuned(frame, "final_score").to_dict("records")
    assert (best["learning_rate"], best["final_score_mean"]) == (0.1, 0.95)


def test_a_seed_that_misses_the_target_leaves_no_mean(variants: Path) -> None:
    summary = tuned(echo_frame(run_frame(read_runs(variants))), "fresh_to_target").set_index("variant")
    assert summary.loc["baseline", "fresh_to_target_mean"] == 192
    assert summary.loc["example_before", "fresh_to_target_mean"] == 64
    assert np.isnan(summary.loc["batch", "fresh_to_target_mean"])
    assert (summary.loc["batch", "n"], summary.loc["batch", "num_reached"]) == (2, 1)
    assert set(summary.columns) >= {f"{measure}_min" for measure in MEASURES}


def test_variants_are_bars_over_the_baseline_by_e(variants: Path) -> None:
    summary = tuned(echo_frame(run_frame(read_runs(variants))), "fresh_to_target")
    (ax,) = draw_fresh_to_target(summary).axes
    heights = [bar.get_height() for bar in ax.patches]  # type: ignore[attr-defined]
    assert heights[0] == 192 and heights[2] == 64
    names = [label.get_text().replace("\n", " ") for label in ax.get_xticklabels()]
    assert names == ["baseline", "batch", "example before"]
    assert np.isnan(heights[1]) and "reached by\n1 of 2" in texts(ax)
    assert "baseline / 2" in texts(ax) and "n = 2; learning rate not tuned" in texts(ax)
    (dashed,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert np.asarray(dashed.get_ydata()).tolist() == [96, 96]


def test_accuracy_at_a_fixed_fresh_budget(variants: Path) -> None:
    runs = [replace(run, manifest=replace(run.manifest, majority_share=0.25)) for run in read_runs(variants)]
    (ax,) = draw_score_at_budget(tuned(echo_frame(run_frame(runs)), "final_score")).axes
    assert "majority\n25%" in texts(ax)
    assert ax.patches[0].get_height() == pytest.approx(0.9)  # type: ignore[attr-defined]
    assert "192 fresh images" in texts(ax)


def test_time_against_the_factor_has_the_bound_of_the_measured_stages(
    tmp_path: Path, make_run: MakeRun
) -> None:
    make_run(tmp_path, "group_5", echo=NONE, epoch_s=2.56)
    for factor in (2, 4, 8):
        make_run(tmp_path, "group_5", echo=before(factor), epoch_s=0.64 * max(4, factor))
    summary = tuned(echo_frame(run_frame(read_runs(tmp_path))), "fresh_to_target")
    pace, seconds, fresh = draw_echo_time(summary).axes
    measured, bound = (np.asarray(line.get_xydata()) for line in (pace.lines[0], pace.lines[-1]))
    assert measured.tolist() == pytest.approx(np.array([[1, 40], [2, 40], [4, 40], [8, 80]]))
    assert bound[0].tolist() == pytest.approx([1, 40]) and bound[-1].tolist() == pytest.approx([8, 80])
    assert np.asarray(seconds.lines[0].get_xydata())[:, 0].tolist() == [1, 2, 4, 8]
    assert np.asarray(fresh.lines[0].get_ydata()).tolist() == [128] * 4
    assert "mean R = 4" in texts(pace)


def test_a_variant_that_no_table_knows_is_drawn_behind_the_others(variants: Path) -> None:
    frame = echo_frame(run_frame(read_runs(variants))).replace({"variant": {"batch": "nightly"}})
    (ax,) = draw_fresh_to_target(tuned(frame, "fresh_to_target")).axes
    names = [label.get_text().replace("\n", " ") for label in ax.get_xticklabels()]
    assert names == ["baseline", "example before", "nightly"]
    assert style_of("nightly") == style_of("nightly") != style_of("batch") and dashes_of("nightly") == ":"


def test_the_bound_is_the_slower_stage() -> None:
    assert bound_ms(np.array([1.0, 4.0, 8.0]), 0.04, 0.01).tolist() == [40, 40, 80]


@pytest.mark.parametrize("x", ["batch_size", "buffer"])
def test_lines_against_batch_size_and_buffer(tmp_path: Path, make_run: MakeRun, x: str) -> None:
    for value in (4, 8, 16):
        settings = (
            {"batch_size": value, "buffer": 1} if x == "batch_size" else {"batch_size": 8, "buffer": value}
        )
        for factor in (1, 2):
            echo = before(factor, settings["buffer"])
            top1 = (0.9,) if factor == 2 else (0.1, 0.9)
            make_run(tmp_path, "group_5", echo=echo, batch_size=settings["batch_size"], top1=top1, epochs=2)
    (ax,) = draw_fresh_against(tuned(echo_frame(run_frame(read_runs(tmp_path))), "fresh_to_target"), x).axes
    assert [container.get_label() for container in ax.containers] == ["baseline", "example before, e = 2"]
    drawn = [np.asarray(container[0].get_xydata()).tolist() for container in ax.containers]  # type: ignore[index]
    assert drawn == [[[x, 128] for x in (4, 8, 16)], [[x, 64] for x in (4, 8, 16)]]


def test_a_point_that_not_every_seed_reaches_is_a_cross_on_the_axis(
    tmp_path: Path, make_run: MakeRun
) -> None:
    for buffer, top1 in ((1, 0.1), (8, 0.9), (64, 0.9)):
        make_run(tmp_path, "group_5", echo=before(2, buffer), top1=(top1,))
    (ax,) = draw_fresh_against(
        tuned(echo_frame(run_frame(read_runs(tmp_path))), "fresh_to_target"), "buffer"
    ).axes
    (cross,) = [line for line in ax.lines if line.get_marker() == "x"]
    assert np.asarray(cross.get_xydata()).tolist() == [[1, 0]]
    assert "target 60% (x: missed)" in texts(ax)
    assert ax.get_xlim()[0] < 1 < 64 < ax.get_xlim()[1]


@pytest.fixture
def finer(tmp_path: Path, make_run: MakeRun) -> Path:
    for seed in (0, 1):
        make_run(tmp_path, "group_5", seed=seed, echo=before(2, 64, (10,)), top1=(0.5, 0.7))
        make_run(tmp_path, "group_5", seed=seed, echo=before(2, 64), top1=(0.4 + seed / 5, 0.8))
        make_run(tmp_path, "group_10", seed=seed, echo=NONE, top1=(0.2, 0.4))
    return tmp_path


def test_accuracy_against_bytes_is_a_mean_over_seeds_up_to_a_common_budget(finer: Path) -> None:
    frame = echo_frame(run_frame(read_runs(finer)))
    curves = byte_curves(frame, tuned(frame, "fresh_to_target"))
    (ax,) = draw_score_against_bytes(curves).axes
    labels = {str(line.get_label()): np.asarray(line.get_xydata()) for line in ax.lines}
    plain = labels["group 5 · example before, e = 2, buffer 64"]
    assert plain.tolist() == pytest.approx(np.array([[320_000, 0.5], [640_000, 0.8]]))
    assert [label for label in labels if label.startswith("group")] == [
        "group 5 · example before, e = 2, buffer 64",
        "group 5 · finer repeats, e = 2, buffer 64, to group 10",
        "group 10 · no echo",
    ]
    assert labels["group 10 · no echo"][:, 0].tolist() == [640_000, 1_280_000]
    (budget,) = [line for line in ax.lines if np.asarray(line.get_ydata()).tolist() == [0, 1]]
    assert "group 10 · no echo · n = 1" not in labels
    assert np.asarray(budget.get_xdata()).tolist() == [640_000, 640_000]


def names(paths: list[Path]) -> set[str]:
    return {path.name for path in paths}


def test_the_table_has_what_echoes_took_and_their_paired_differences(variants: Path) -> None:
    runs = [replace(run, manifest=replace(run.manifest, majority_share=0.25)) for run in read_runs(variants)]
    text = echo_to_markdown(tuned(echo_frame(run_frame(runs)), "fresh_to_target"))
    lines = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in text.splitlines()}
    assert lines["baseline"][7:] == [
        *("192", "960 kB", "30", "156", "90.0%", "90.0%", "25.0%", "- |"),
    ]
    assert lines["batch, e = 2"][7:9] == ["reached by 1 of 2"] * 2
    # Seeds end at 70 and 20 %, the baseline at 90 %: -45 ± 12.706 x 25.
    assert lines["batch, e = 2"][-4:] == [
        "45.0% (20.0% to 70.0%)",
        "50.0% (30.0% to 70.0%)",
        "25.0%",
        "-45.0 ± 318 |",
    ]
    assert "storage 8 MiB/s, n = 2; learning rate not tuned; target 60%" in text


def test_seconds_that_may_not_be_said_are_in_no_table_and_no_figure(
    tmp_path: Path, make_run: MakeRun
) -> None:
    for factor in (1, 2, 4):
        make_run(tmp_path / "runs", "group_5", echo=before(factor))
    runs = [replace(run, shared_machine="tests ran beside it") for run in read_runs(tmp_path / "runs")]
    summary = tuned(echo_frame(run_frame(runs)), "fresh_to_target")
    assert summary[[f"{measure}_mean" for measure in TIMES]].isna().all(axis=None)
    assert summary["fresh_to_target_mean"].notna().all(), "examples are no seconds"
    text = echo_to_markdown(summary)
    assert "| - ¹ | - ¹ |" in text and "¹ Tests ran beside it." in text and "| 1 † |" in text
    tables, figures = written(write_echo_report, run_frame(runs), tmp_path)
    assert names(tables) == {"echo.csv", "echo.md"} and figures == []


def test_nothing_is_reached_at_a_target_of_guessing(variants: Path) -> None:
    runs = [replace(run, manifest=replace(run.manifest, majority_share=0.6)) for run in read_runs(variants)]
    summary = tuned(echo_frame(run_frame(runs)), "fresh_to_target")
    assert summary["fresh_to_target_mean"].isna().all()
    assert "A target of 60% is reached by always saying the most frequent class" in echo_to_markdown(summary)
    (ax,) = draw_fresh_to_target(summary).axes
    assert "target\nis guessed" in texts(ax)


def test_each_setting_is_drawn_where_its_runs_differ(
    variants: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, make_run: MakeRun
) -> None:
    out = tmp_path_factory.mktemp("figures")
    files = [
        f"{name}.{ending}"
        for name in ("echo_fresh_to_target", "echo_top1_at_budget")
        for ending in ("pdf", "png", "csv")
    ]
    assert names(written(write_echo_report, run_frame(read_runs(variants)), out)[1]) == set(files)
    assert {path.name for path in out.iterdir()} == {"echo.csv", "echo.md", *files}
    drawn = pd.read_csv(out / "echo_fresh_to_target.csv")
    assert sorted(drawn["variant"]) == ["baseline", "batch", "example_before"]
    shutil.copytree(variants, tmp_path, dirs_exist_ok=True)
    make_run(tmp_path, "group_5", echo=before(), batch_size=32)
    assert {"echo_batch_size.png"} < names(written(write_echo_report, run_frame(read_runs(tmp_path)), out)[1])
    make_run(tmp_path, "group_5", echo=before(4))
    assert {"echo_time.png"} < names(written(write_echo_report, run_frame(read_runs(tmp_path)), out)[1])
    make_run(tmp_path, "group_5", echo=before(2, 1, (10,)))
    assert {"echo_bytes.png"} < names(written(write_echo_report, run_frame(read_runs(tmp_path)), out)[1])


def test_buffers_are_a_figure(tmp_path: Path, make_run: MakeRun) -> None:
    for buffer in (1, 8, 64):
        make_run(tmp_path / "runs", "group_5", echo=before(2, buffer))
    _, figures = written(write_echo_report, run_frame(read_runs(tmp_path / "runs")), tmp_path)
    assert "echo_buffer.png" in names(figures)


def test_buffers_of_one_variant_and_all_variants_are_a_figure_each(
    variants: Path, tmp_path: Path, make_run: MakeRun
) -> None:
    """Batches have one buffer, so they are no line over buffers, but they are a bar."""
    shutil.copytree(variants, tmp_path / "runs")
    for buffer in (8, 64):
        make_run(tmp_path / "runs", "group_5", echo=before(2, buffer))
    make_run(tmp_path / "runs", "group_5", echo=before(1, 64))
    frame = run_frame(read_runs(tmp_path / "runs"))
    _, figures = written(write_echo_report, frame, tmp_path)
    assert {"echo_buffer.png", "echo_fresh_to_target.png"} < names(figures)
    over_buffers = pd.read_csv(tmp_path / "echo_buffer.csv")
    assert sorted(set(over_buffers["variant"])) == ["baseline", "example_before"]
    assert "batch" in set(pd.read_csv(tmp_path / "echo_fresh_to_target.csv")["variant"])


def test_without_echo_nothing_is_drawn(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "runs", "group_5")
    frame = run_frame(read_runs(tmp_path / "runs"))
    assert written(write_echo_report, frame, tmp_path / "out") == ([], [])
    assert written(write_echo_report, run_frame([]), tmp_path / "out") == ([], [])
