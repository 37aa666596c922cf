"""Bytes of every combination of methods, from rows such as two processes would write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_runs import written

from experiments.combined.page import (
    OFF,
    combined_frame,
    combined_markdown,
    combined_summary,
    draw_combined,
    write_combined,
)
from experiments.pages import PAGES
from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.runs import read_runs
from pcr_exp.config.related_methods import EchoConfig, GradientsConfig, NetworkConfig
from pcr_exp.gradients.threelc import ThreeLCConfig
from pcr_exp.loading.echo.variants import ExampleBeforeConfig

pytestmark = pytest.mark.usefixtures("light_figures")

MakeRun = Callable[..., Path]
ECHO = ExampleBeforeConfig(factor=2)


def write(root: Path, make_run: MakeRun, scan: str, on: tuple[str, ...] = (), seed: int = 0) -> None:
    """Write a run of 12 updates of 16 images. Each method in `on` saves a fixed share of what it reduces."""
    echo = ECHO if "echo" in on else EchoConfig()
    gradients = ThreeLCConfig() if "threelc" in on else GradientsConfig()
    activations = QuantiseConfig(name="error_bounded" if "activations" in on else "none", interval=10)
    fresh = int(192 / echo.factor)
    kept = 75_000 if "activations" in on else 100_000
    columns: dict[str, Any] = {
        "step": 12,
        "samples_seen": fresh,
        "samples_trained": 192,
        "record_bytes": fresh * (400 if scan == "group_5" else 1000),
        "bytes_read": fresh * (400 if scan == "group_5" else 1000) + seed,
        "bytes_sent": 24_000 if "threelc" in on else 960_000,
        "pushed_values": 24_000,
        "pushed_bytes": 24_000 if "threelc" in on else 960_000,
        "pushed_plain_values": 0,
        "pulled_values": 0,
        "pulled_plain_values": 0,
        "pulled_bytes": 0,
        "network_s": 0.05 if "threelc" in on else 2.0,
        "kept_bytes_mean": kept,
        "kept_bytes_max": kept + 1000 * seed,
    }
    make_run(
        root,
        scan,
        seed=seed,
        echo=echo,
        top1=(0.5, 0.6 + 0.1 * seed),
        more={
            "gradients": gradients,
            "activations": activations,
            "network": NetworkConfig(name="100mbit", bandwidth_mbit_per_s=100),
            "world_size": 2,
        },
        columns=columns,
    )


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory, make_run: MakeRun) -> Path:
    """All off, each alone, all on; two seeds."""
    root = tmp_path_factory.mktemp("six")
    for seed in (0, 1):
        write(root, make_run, "baseline", seed=seed)
        write(root, make_run, "group_5", seed=seed)
        for name in ("echo", "threelc", "activations"):
            write(root, make_run, "baseline", (name,), seed=seed)
        write(root, make_run, "group_5", ("echo", "threelc", "activations"), seed=seed)
    return root


def test_each_place_is_compared_with_all_off(six: Path) -> None:
    summary = combined_summary(combined_frame(run_frame(read_runs(six))))
    assert summary["combination"].tolist() == [
        "all off",
        "group 5",
        "echo 2x",
        "threelc",
        "error bounded",
        "group 5 + echo 2x + threelc + error bounded",
    ]
    assert set(summary["n"]) == {2}
    shares = summary[["storage_share", "network_share", "memory_share"]].to_numpy()
    wanted = [[1, 1, 1], [0.4, 1, 1], [0.5, 1, 1], [1, 0.025, 1], [1, 1, 0.75], [0.2, 0.025, 0.75]]
    np.testing.assert_allclose(shares, wanted, rtol=1e-4)
    last = summary.iloc[-1]
    assert (last["fresh_mean"], last["repeats_mean"], last["updates_mean"]) == (96, 96, 12)
    assert (last["storage_bytes_min"], last["storage_bytes_max"]) == (38_400, 38_401)
    assert (last["final_score_min"], last["final_score_max"]) == (0.6, 0.7)
    assert (last["difference_n"], last["difference_mean"], last["difference_ci95"]) == (2, 0, 0)
    assert last["speedup"] == 1 and np.isnan(summary.iloc[0]["difference_mean"])
    assert (last["seconds_mean"], last["wait_s_mean"], last["network_s_mean"]) == (20, 15, 0.05)


def test_every_combination_has_a_line(tmp_path: Path, make_run: MakeRun) -> None:
    for scan, *on in product(("baseline", "group_5"), ("echo", ""), ("threelc", ""), ("activations", "")):
        write(tmp_path, make_run, scan, tuple(on))
    summary = combined_summary(combined_frame(run_frame(read_runs(tmp_path))))
    assert len(summary) == 16 and summary["combination"].is_unique
    num_on = [0 if name == "all off" else name.count("+") + 1 for name in summary["combination"]]
    assert num_on == sorted(num_on)
    assert summary["combination"].tolist()[5:7] == ["group 5 + echo 2x", "group 5 + threelc"]


def test_the_table_says_where_bytes_went(six: Path) -> None:
    runs = [replace(run, manifest=replace(run.manifest, majority_share=0.25)) for run in read_runs(six)]
    text = combined_markdown(combined_summary(combined_frame(run_frame(runs))))
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines()}
    assert (
        lines["all off"]
        == "| all off | 2 | 192 kB (100%) | 192 | 0 | 0 B | 960 kB | 0 B | 960 kB (100%) | 100 kB (100%)"
        " | 101 kB | 20 | 15, 2 | - | 65.0% (60.0% to 70.0%) | 65.0% (60.0% to 70.0%) | 25.0% | - |"
    )
    assert "| 38.4 kB (20%) | 96 | 96 | 38.4 kB | 24 kB | 0 B | 24 kB (2.5%) | 75 kB (75%) | 76 kB |" in text
    assert "network 100mbit (100 Mbit/s), 2 processes; 12 updates" in text and "Test CPU, 2 cores" in text


def test_seconds_of_unlimited_storage_or_a_shared_machine_are_not_shown(six: Path) -> None:
    runs = [replace(run, shared_machine="tests ran beside it") for run in read_runs(six)]
    summary = combined_summary(combined_frame(run_frame(runs)))
    assert summary[["seconds_mean", "wait_s_mean", "network_s_mean", "speedup"]].isna().all(axis=None)
    text = combined_markdown(summary)
    assert "| 101 kB | - ¹ | - ¹ | - ¹ | 65.0%" in text and "¹ Tests ran beside it." in text
    (seconds,) = [ax for ax in draw_combined(summary).axes if "seconds" in ax.get_xlabel()]
    assert "tests ran beside it" in seconds.texts[0].get_text().replace("\n", " ")


def test_one_run_alone_is_marked_in_table_and_figure(tmp_path: Path, make_run: MakeRun) -> None:
    for name in ("", "echo", "threelc", "activations"):
        write(tmp_path, make_run, "baseline", (name,))
    write(tmp_path, make_run, "baseline", seed=1)
    summary = combined_summary(combined_frame(run_frame(read_runs(tmp_path))))
    assert "| echo 2x | 1 † |" in combined_markdown(summary)
    labels = [label.get_text() for label in draw_combined(summary).axes[0].get_yticklabels()]
    assert labels[:2] == ["all off", "echo 2x (n = 1)"]


def test_without_all_off_there_is_nothing_to_take_shares_of(six: Path) -> None:
    frame = combined_frame(run_frame(read_runs(six)))
    off = frame[frame["combination"] == "all off"]
    several = combined_summary(pd.concat([frame, off.assign(variant="others", setting=off["setting"])]))
    assert several["difference_mean"].isna().all(), "nobody says to which of two"
    summary = combined_summary(frame[frame["combination"] != "all off"])
    assert len(summary) == 5 and summary["storage_share"].isna().all()
    assert "| group 5 | 2 | 76.8 kB | 192 |" in combined_markdown(summary)
    assert len(draw_combined(summary).axes) == 3


def test_what_was_never_measured_is_a_dash(six: Path) -> None:
    frame = combined_frame(run_frame(read_runs(six))).assign(kept_bytes_mean=None, kept_bytes_max=None)
    summary = combined_summary(frame)
    assert summary["memory_share"].isna().all()
    assert "| 960 kB (100%) | - | - | 20 |" in combined_markdown(summary)


def test_repeats_that_read_on_give_nothing_again_that_can_be_told(tmp_path: Path, make_run: MakeRun) -> None:
    finer = ExampleBeforeConfig(factor=2, repeat_groups=[5])
    make_run(tmp_path, "group_2", echo=finer)
    make_run(tmp_path, "group_2", echo=ExampleBeforeConfig(factor=2))
    frame = combined_frame(run_frame(read_runs(tmp_path)))
    again = frame.set_index(frame["variant"])["reused_bytes"]
    assert again.isna().sum() == 1
    # Three epochs of 64 fresh samples and as many repeats, of 2,000 bytes each.
    assert again.dropna().tolist() == [3 * 64 * 2000]


def test_the_figure_has_a_line_per_combination(six: Path) -> None:
    summary = combined_summary(combined_frame(run_frame(read_runs(six))))
    shares, seconds, top1 = draw_combined(summary).axes
    assert [label.get_text() for label in shares.get_yticklabels()] == summary["combination"].tolist()
    storage = next(line for line in shares.lines if line.get_label() == "storage")
    np.testing.assert_allclose(storage.get_xdata(), summary["storage_share"])  # type: ignore[arg-type]
    widths = np.reshape([bar.get_width() for bar in seconds.patches], (3, 6))  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths.sum(axis=0), 20)
    np.testing.assert_allclose(widths[1], [2, 2, 2, 0.05, 2, 0.05])
    assert "points of top-1\nagainst all off" in top1.get_xlabel()
    (points,) = [line for line in top1.lines if line.get_marker() == "o"]
    compared = summary[summary["combination"] != OFF]["difference_mean"]
    assert np.asarray(points.get_xdata(), dtype=float) == pytest.approx(100 * compared.to_numpy(float))


def test_ways_of_keeping_activations_are_compared_alone(tmp_path: Path, make_run: MakeRun) -> None:
    for name, model, kept in (
        ("none", "exact", 100),
        ("error_bounded", "exact", 70),
        ("error_bounded", "paper", 60),
    ):
        more = {"activations": QuantiseConfig(name=name, error_model=model)}
        make_run(tmp_path, "baseline", more=more, columns={"kept_bytes_mean": kept, "kept_bytes_max": kept})
    summary = combined_summary(combined_frame(run_frame(read_runs(tmp_path))))
    assert summary["combination"].tolist() == ["all off", "error bounded", "error bounded paper"]
    assert summary["memory_share"].tolist() == [1, 0.7, 0.6]
    text = combined_markdown(summary)
    assert "network unlimited, 1 process; " in text
    assert "| - | - | - | 70 B (70%) | 70 B |" in text
    assert "network" not in [line.get_label() for line in draw_combined(summary).axes[0].lines]
    report = write_report(tmp_path, tmp_path / "nothing", tmp_path / "out", pages=PAGES)
    page = report.tables[-1].read_text()
    assert (
        page.startswith(f"{text}\nMeasured: n = 1 seed each; interval: none; NUMERICS") and "† n = 1" in text
    )
    assert [path.name for path in report.figures][-3:] == ["combined.pdf", "combined.png", "combined.csv"]


def test_runs_of_fewer_methods_are_not_for_this_table(tmp_path: Path, make_run: MakeRun) -> None:
    for scan in ("baseline", "group_5"):
        for on in ((), ("echo",)):
            write(tmp_path, make_run, scan, on)
    assert written(write_combined, run_frame(read_runs(tmp_path)), tmp_path / "out") == ([], [])


def test_the_table_and_the_figure_are_written(six: Path, tmp_path: Path) -> None:
    tables, figures = written(write_combined, run_frame(read_runs(six)), tmp_path)
    assert [path.name for path in tables] == ["combined.md"]
    assert [path.name for path in figures] == ["combined.pdf", "combined.png", "combined.csv"]
    assert len(pd.read_csv(tmp_path / "combined.csv")) == 6
