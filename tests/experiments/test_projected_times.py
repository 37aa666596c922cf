"""Epochs of some runs times seconds per epoch of others, on synthetic rows with known answers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from experiments.pcr.time_to_target import (
    NO_TARGET,
    UNKNOWN,
    LogMean,
    log_mean,
    projected_times,
    read_targets,
)
from experiments.pcr.time_to_target_page import minutes, model_curve, write_projected
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.reporting_rules import NOT_EXCLUSIVE, UNLIKE
from pcr_exp.analysis.runs import read_runs, read_timed_runs
from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import RunError

pytestmark = pytest.mark.usefixtures("light_figures")

MakeRun = Callable[..., Path]
KEY = ("photos", "photo", "resnet18", 64)
TARGETS = {KEY: ("top1", 0.6)}
FREE = StorageConfig(name="unlimited")


def edit(folder: Path, manifest: dict[str, Any], **training: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **manifest}))
    config = folder / "config.yaml"
    for key, value in training.items():
        text = config.read_text()
        assert f"{key}: null" in text
        config.write_text(text.replace(f"{key}: null", f"{key}: {value}"))


def learn(root: Path, make_run: MakeRun, scan: str, *top1: tuple[float, ...], **changes: Any) -> None:
    for seed, found in enumerate(top1):
        make_run(root, scan, seed=seed, top1=found, more={"storage": FREE}, **changes)


def short(
    root: Path,
    make_run: MakeRun,
    scan: str,
    mib_per_s: float | None,
    epoch_s: float,
    others: float | None = 0.01,
    **changes: Any,
) -> None:
    """Write a short run that ended after two epochs, each of 64 images in `epoch_s` seconds."""
    storage = StorageConfig(name="throttled", bandwidth_mib_per_s=mib_per_s)
    folder = make_run(root, scan, epoch_s=epoch_s, top1=(0.1, 0.1), more={"storage": storage}, **changes)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    timed = [{**row, "others_cpu_share": others} for row in rows if row["kind"] == "train"]
    if others is None:
        timed = [row for row in rows if row["kind"] == "train"]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timed))
    edit(folder, {"num_train": 64, "sessions": []}, stop_after_s=60.0)


@pytest.fixture
def roots(tmp_path: Path, make_run: MakeRun) -> tuple[Path, Path]:
    """Baseline reaches 60 % after 2 epochs, group 1 after 4.

    Epochs take 40 s and 5 s at 1 MiB/s, and 10 s and 5 s without a limit.
    """
    learned, timed = tmp_path / "learned", tmp_path / "timed"
    learn(learned, make_run, "baseline", (0.3, 0.7, 0.7, 0.7), (0.3, 0.7, 0.7, 0.7))
    learn(learned, make_run, "group_1", (0.3, 0.3, 0.3, 0.7), (0.3, 0.3, 0.3, 0.8))
    for scan, epoch_s, free_s in (("baseline", 40.0, 10.0), ("group_1", 5.0, 5.0)):
        short(timed, make_run, scan, 1.0, epoch_s)
        short(timed, make_run, scan, None, free_s)
    return learned, timed


def read(roots: tuple[Path, Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    return run_frame(read_runs(roots[0])), run_frame(read_timed_runs(roots[1]))


def level(table: pd.DataFrame, scan: str) -> pd.Series:
    (row,) = table[table["scan"] == scan].to_dict("records")
    return pd.Series(row)


def test_time_is_epochs_times_seconds_per_epoch(roots: tuple[Path, Path]) -> None:
    table = projected_times(*read(roots), TARGETS)
    baseline, first = level(table, "baseline"), level(table, "group_1")
    assert (baseline["epochs_mean"], baseline["epoch_s"]) == (2, pytest.approx(40))
    assert (baseline["time_s"], first["time_s"]) == (pytest.approx(80), pytest.approx(20))
    assert first["speedup"] == pytest.approx(4)
    assert baseline["speedup"] == pytest.approx(1)
    assert (first["n"], first["n_timed"], first["bandwidth_mib_per_s"]) == (2, 1, 1.0)
    assert first["speedup_low"] == first["speedup_high"] == pytest.approx(4), "both seeds say the same"
    assert first["no_time"] == ""


def test_the_model_takes_the_same_epochs_and_the_smaller_of_two_rates(roots: tuple[Path, Path]) -> None:
    """1 MiB/s allows 1,049 images/s of 1 kB. Compute allows 6.4 and 12.8: 64 images in 10 s and 5 s."""
    table = projected_times(*read(roots), TARGETS)
    assert level(table, "group_1")["free_images_per_s"] == pytest.approx(12.8)
    assert level(table, "group_1")["model_speedup"] == pytest.approx(1), "twice the epochs, twice as fast"
    (slow, fast) = model_curve(table, table[table["scan"] == "group_1"], [0.001, 10.0])
    assert (slow, fast) == (pytest.approx(0.5), pytest.approx(1)), "both of 1,000 bytes an image"


def test_without_a_run_of_unlimited_storage_there_is_no_curve(roots: tuple[Path, Path]) -> None:
    learned, timed = read(roots)
    limited = timed[timed["bandwidth_mib_per_s"].notna()]
    table = projected_times(learned, limited, TARGETS)
    assert level(table, "group_1")["speedup"] == pytest.approx(4)
    assert table["model_speedup"].isna().all()
    assert model_curve(table, table[table["scan"] == "group_1"], [1.0]) == []


def test_compute_is_known_from_exclusive_runs_alone(tmp_path: Path, make_run: MakeRun) -> None:
    learned, timed = tmp_path / "learned", tmp_path / "timed"
    learn(learned, make_run, "baseline", (0.3, 0.7))
    short(timed, make_run, "baseline", 1.0, 10.0)
    short(timed, make_run, "baseline", None, 5.0, others=0.4)
    row = level(projected_times(*read((learned, timed)), TARGETS), "baseline")
    assert row["time_s"] == pytest.approx(20)
    assert pd.isna(row["free_images_per_s"]) and pd.isna(row["model_speedup"])


def test_the_interval_is_over_seeds_and_short_runs(tmp_path: Path, make_run: MakeRun) -> None:
    learned, timed = tmp_path / "learned", tmp_path / "timed"
    learn(learned, make_run, "baseline", (0.7, 0.7), (0.3, 0.7))
    for seed, epoch_s in enumerate((10.0, 12.0)):
        short(timed, make_run, "baseline", 1.0, epoch_s, seed=seed)
    table = projected_times(*read((learned, timed)), TARGETS)
    row = level(table, "baseline")
    wanted = log_mean([1, 2]).times(log_mean([10, 12])).interval
    assert row[["time_s", "time_s_low", "time_s_high"]].tolist() == pytest.approx(wanted)
    assert row["time_s"] == pytest.approx((2 * 120) ** 0.5)
    assert row["time_s_low"] < 1 * 10 and row["time_s_high"] > 2 * 12
    assert row[["epoch_s_min", "epoch_s_max"]].tolist() == pytest.approx([10, 12])


def test_the_interval_of_a_product_is_students() -> None:
    """A single factor has the t interval of its logarithms (scipy); a single value has none."""
    middle, low, high = log_mean([2.0, 4.0, 8.0]).interval
    assert middle == pytest.approx(4)
    assert (low, high) == (pytest.approx(4 / 5.595, rel=1e-3), pytest.approx(4 * 5.595, rel=1e-3))
    assert pd.isna(log_mean([3.0]).interval[1])
    both = log_mean([2.0, 4.0, 8.0]).times(log_mean([3.0]), -1).interval
    assert both == pytest.approx((4 / 3, low / 3, high / 3))


def test_a_product_has_welch_satterthwaites_degrees_of_freedom() -> None:
    _, low, high = LogMean(0.0, ((0.04, 2),)).times(LogMean(0.0, ((0.01, 4),))).interval
    freedom = 0.05**2 / (0.04**2 / 2 + 0.01**2 / 4)
    assert math.log(high) == pytest.approx(-math.log(low))
    assert math.log(high) == pytest.approx(stats.t.ppf(0.975, freedom) * 0.05**0.5)


def test_seconds_of_unlike_hardware_are_not_compared(roots: tuple[Path, Path]) -> None:
    learned, timed = read(roots)
    ours = timed[timed["scan"] == "group_1"].assign(timing="elsewhere")
    apart = level(
        projected_times(learned, pd.concat([timed[timed["scan"] == "baseline"], ours]), TARGETS), "group_1"
    )
    assert apart["time_s"] == pytest.approx(20) and pd.isna(apart["speedup"])
    mixed = level(projected_times(learned, pd.concat([timed, ours]), TARGETS), "group_1")
    assert mixed["no_time"] == UNLIKE and pd.isna(mixed["time_s"])


def test_times_are_refused_with_the_reason(tmp_path: Path, make_run: MakeRun) -> None:
    learned = tmp_path / "learned"
    learn(learned, make_run, "baseline", (0.3, 0.7), (0.3, 0.7))
    learn(learned, make_run, "group_1", (0.3, 0.7), (0.3, 0.5))
    learn(learned, make_run, "group_2", (0.3, 0.7))
    learn(learned, make_run, "group_5", (0.3, 0.7))
    timed = tmp_path / "timed"
    for scan, others in (("baseline", 0.01), ("group_1", 0.01), ("group_2", 0.2), ("group_5", None)):
        short(timed, make_run, scan, 1.0, 10.0, others)
    runs = read((learned, timed))
    reasons = projected_times(*runs, TARGETS).set_index("scan")["no_time"].to_dict()
    assert reasons == {
        "baseline": "",
        "group_1": "reached by 1 of 2 seeds",
        "group_2": NOT_EXCLUSIVE,
        "group_5": UNKNOWN,
    }
    seconds = projected_times(*runs, TARGETS).set_index("scan")["epoch_s"]
    assert seconds[["baseline", "group_1"]].notna().all() and seconds[["group_2", "group_5"]].isna().all()
    assert set(projected_times(*runs, {})["no_time"]) == {NO_TARGET}
    (other,) = set(projected_times(*runs, {KEY: ("balanced_accuracy", 0.5)})["no_time"])
    assert other == "the target is of balanced accuracy, and runs are judged by top-1"


def test_no_speedup_over_a_baseline_that_did_not_reach_the_target(tmp_path: Path, make_run: MakeRun) -> None:
    learned, timed = tmp_path / "learned", tmp_path / "timed"
    learn(learned, make_run, "baseline", (0.3, 0.5))
    learn(learned, make_run, "group_1", (0.3, 0.7))
    for scan in ("baseline", "group_1"):
        short(timed, make_run, scan, 1.0, 10.0)
    row = level(projected_times(*read((learned, timed)), TARGETS), "group_1")
    assert row["time_s"] == pytest.approx(20) and pd.isna(row["speedup"])


def test_trainings_that_learned_otherwise_are_not_joined(tmp_path: Path, make_run: MakeRun) -> None:
    learned, timed = tmp_path / "learned", tmp_path / "timed"
    learn(learned, make_run, "baseline", (0.3, 0.7), (0.3, 0.7))
    learn(learned, make_run, "group_1", (0.3, 0.7), learning_rate=0.5)
    short(timed, make_run, "baseline", 1.0, 40.0)
    with pytest.raises(
        RunError, match=r"differ in settings of learning, such as epochs, .* a folder of its own"
    ):
        projected_times(*read((learned, timed)), TARGETS)


def test_a_short_run_of_one_row_has_no_speed(roots: tuple[Path, Path]) -> None:
    learned, timed = read(roots)
    timed["rows"].iloc[0][1:] = []
    with pytest.raises(RunError, match=r"rows of one update alone, and so no speed.*log_every_steps=1"):
        projected_times(learned, timed, TARGETS)


def test_runs_of_another_speed_are_not_joined(tmp_path: Path, make_run: MakeRun) -> None:
    learned, timed = tmp_path / "learned", tmp_path / "timed"
    learn(learned, make_run, "baseline", (0.3, 0.7), learning_rate=0.3)
    short(timed, make_run, "baseline", 1.0, 10.0)
    assert len(projected_times(*read((learned, timed)), TARGETS)) == 1, "rates differ only"
    short(tmp_path / "other", make_run, "baseline", 1.0, 10.0, batch_size=32)
    assert projected_times(*read((learned, tmp_path / "other")), TARGETS).empty
    with pytest.raises(
        RunError, match=r"none of the 1 runs below .* shares its setting with one of the 1 short"
    ):
        write_projected(learned, tmp_path / "other", tmp_path, tmp_path)


def write_targets(folder: Path, **columns: Any) -> None:
    folder.mkdir(parents=True)
    row = {"dataset": "photos", "label": "photo", "model": "resnet18", "image_size_px": 64, **columns}
    pd.DataFrame([row]).to_csv(folder / "fair_baseline.csv", index=False)


def test_targets_are_those_of_the_fair_baselines(tmp_path: Path) -> None:
    write_targets(tmp_path / "one", target_top1=0.6)
    assert read_targets(tmp_path) == TARGETS
    write_targets(tmp_path / "two", target_score=0.6, headline="top1")
    assert read_targets(tmp_path) == TARGETS
    write_targets(tmp_path / "three", target_top1=0.5)
    with pytest.raises(RunError, match=r"three.* is \('top1', 0.5\), and \('top1', 0.6\) in"):
        read_targets(tmp_path)
    write_targets(tmp_path / "z" / "bad", chosen=1)
    (tmp_path / "two" / "fair_baseline.csv").unlink()
    (tmp_path / "three" / "fair_baseline.csv").unlink()
    with pytest.raises(RunError, match="has no column of targets"):
        read_targets(tmp_path)


def test_the_page_has_a_table_per_bandwidth_and_a_figure(roots: tuple[Path, Path], tmp_path: Path) -> None:
    write_targets(tmp_path / "targets", target_top1=0.6)
    tables, figures = write_projected(*roots, tmp_path / "targets", tmp_path)
    text = (tmp_path / "projected_times.md").read_text()
    assert "### 1 MiB/s, projected\n\nTest CPU, 2 cores, exclusive." in text
    assert text.startswith("**Projected times, not measured ones: epochs times a one-minute measurement;")
    times = "80 s (80 s to 80 s) | 20 s (20 s to 20 s): **4.00 x**"
    assert f"| photos · photo · resnet18 · 64 px | 60.0% top-1 | 2 | {times}" in text
    assert "| photos · photo · resnet18 · 64 px | group 1 | 2 | 4 | 1 | 12.8 |" in text
    assert [path.name for path in tables] == ["projected_times.csv", "projected_times.md"]
    assert {path.name for path in figures} == {f"speedup_vs_bandwidth.{end}" for end in ("pdf", "png", "csv")}


def test_there_is_no_figure_of_baseline_alone(roots: tuple[Path, Path], tmp_path: Path) -> None:
    """Only one of two seeds of group 1 reaches the target, so there is no speed-up."""
    write_targets(tmp_path / "targets", target_top1=0.65)
    assert write_projected(*roots, tmp_path / "targets", tmp_path)[1]
    for folder in sorted(roots[0].iterdir()):
        rows = (folder / "rows.jsonl").read_text()
        if "group_1" in folder.name:
            (folder / "rows.jsonl").write_text(rows.replace('"val_top1": 0.8', '"val_top1": 0.4'))
    tables, figures = write_projected(*roots, tmp_path / "targets", tmp_path)
    assert len(tables) == 2 and figures == []


def test_seconds_for_people() -> None:
    assert [minutes(seconds) for seconds in (45, 738, 12_240)] == ["45 s", "12.3 min", "3.4 h"]


def test_one_seed_has_no_interval_however_often_it_was_timed(tmp_path: Path, make_run: MakeRun) -> None:
    roots = tmp_path / "learned", tmp_path / "timed"
    for scan, epoch_s in (("baseline", 40.0), ("group_1", 5.0)):
        learn(roots[0], make_run, scan, (0.3, 0.7, 0.7, 0.7))
        for seed in (0, 1):
            short(roots[1], make_run, scan, 1.0, epoch_s + seed, seed=seed)
            short(roots[1], make_run, scan, None, 5.0, seed=seed)
    ours = level(projected_times(*read(roots), TARGETS).query("bandwidth_mib_per_s == 1"), "group_1")
    assert ours["speedup"] > 1 and ours["n_timed"] == 2
    assert ours[["time_s_low", "time_s_high", "speedup_low", "speedup_high"]].isna().all()
