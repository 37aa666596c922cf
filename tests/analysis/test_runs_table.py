"""Tables from runs on disk."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.pages import PAGES
from pcr_exp.analysis import frame
from pcr_exp.analysis.accuracy import with_seconds
from pcr_exp.analysis.figure import only_figures
from pcr_exp.analysis.frame import (
    REACHED,
    RUN_COLUMNS,
    eval_curves,
    first_reached,
    reached_of,
    run_frame,
    seconds_of,
    setting_keys,
    with_more,
)
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.runs import Run, read_runs, unfinished_runs
from pcr_exp.analysis.summary import summary_table, to_markdown
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.errors import RunError
from pcr_exp.loading.echo.variants import ExampleBeforeConfig
from pcr_exp.runs.quality import GroupQuality

MakeRun = Callable[..., Path]


def own_quality(**changes: Any) -> GroupQuality:
    entry = {
        "group": 2,
        "decode": "scaled",
        "antialias": LoaderConfig().antialias,
        "ms_ssim_mean": 0.8,
        "ms_ssim_std": 0.02,
        "num_images": 200,
        "num_scales": 3,
        "bytes_per_image": 2000.0,
    }
    return GroupQuality(**entry | changes)


def eval_row(seconds: float, top1: float) -> dict:
    clocks = {"train_s": seconds / 4, "wait_s": seconds / 2, "probe_s": seconds / 4, "eval_s": 99}
    return {"kind": "eval", "eval_group": "full", **clocks, "val_score": top1}


def test_time_to_accuracy_is_the_first_evaluation_at_the_target() -> None:
    rows = [eval_row(4, 0.2), {"kind": "train"}, eval_row(8, 0.5), eval_row(12, 0.4), eval_row(16, 0.9)]
    seconds = {target: seconds_of(first_reached(rows, target)) for target in (0.2, 0.5, 0.51)}
    assert seconds == {0.2: 4, 0.5: 8, 0.51: 16}
    assert first_reached(rows, 0.95) is None and first_reached([], 0.5) is None


def test_what_a_run_took_to_its_target(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_2", top1=(0.3, 0.6, 0.9))
    (run,) = read_runs(tmp_path)
    assert list(reached_of(run, "", "").values()) == [2, 128, 128 * 2000, 20]
    assert list(reached_of(run, "", "shared").values())[:3] == [2, 128, 128 * 2000]
    assert math.isnan(reached_of(run, "", "shared")["time_to_target_s"])
    assert all(math.isnan(value) for value in reached_of(run, "guessed", "").values())
    assert list(reached_of(run, "", "")) == REACHED


def test_a_setting_stands_for_all_that_a_table_does_not_compare(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_2", seed=0)
    make_run(tmp_path, "baseline", seed=1, batch_size=32)
    frame = run_frame(read_runs(tmp_path))

    def are_alike(*less: str, keep: tuple[str, ...] = ()) -> bool:
        one, other = setting_keys(frame, less, keep)
        return one == other

    assert not are_alike("scan", "seed")
    assert are_alike("scan", "seed", "training.batch_size")
    assert are_alike("scan", "seed", "training")
    assert not are_alike("scan", "seed", "training", keep=("training.batch_size",))


def test_a_policys_run_has_no_group_and_the_bytes_that_it_read(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_2")
    make_run(tmp_path, "schedule", columns={"probe_bytes": 19_200})  # 100 for each of 192 images
    measured = [own_quality(group=1, ms_ssim_mean=0.5), own_quality(group=2, ms_ssim_mean=0.9)]
    runs = run_frame(
        [replace(run, manifest=replace(run.manifest, quality=measured)) for run in read_runs(tmp_path)]
    )
    policy = "schedule (groups=[1,5], milestones=[1])"
    assert runs["scan"].tolist() == ["group_2", policy]
    assert runs["group"].isna().tolist() == [False, True]
    assert runs["mean_image_bytes"].tolist() == [2000, 1000 + 100]
    summary = summary_table(runs)
    assert summary["scan"].tolist() == ["group_2", policy]
    assert summary["ms_ssim"].iloc[0] == 0.9 and np.isnan(summary["ms_ssim"].iloc[1])


def test_one_row_per_finished_run(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "baseline", epoch_s=40)
    make_run(tmp_path, "group_2", seed=1)
    runs = run_frame(read_runs(tmp_path)).set_index("scan")
    assert with_more(run_frame(read_runs(tmp_path)), RUN_COLUMNS) == RUN_COLUMNS
    assert len(runs) == 2
    run = runs.loc["group_2"]
    assert run["run_id"].startswith("photos-photo-resnet18-group_2-8mibps-s1-")
    assert (run["dataset"], run["label"], run["model"], run["seed"]) == ("photos", "photo", "resnet18", 1)
    assert (run["storage"], run["bandwidth_mib_per_s"], run["latency_ms"]) == ("8 MiB/s", 8, 0)
    assert run["mean_image_bytes"] == 2000
    assert run["images_per_s"] == pytest.approx(6.4)
    assert run["wait_share"] == pytest.approx(0.75)
    assert run["storage_mib_per_s"] == pytest.approx(3 * 140_000 / 2**20 / (30 + 3))
    assert (run["best_score"], run["final_score"], run["time_to_target_s"]) == (0.9, 0.9, 20)
    assert (run["epochs_to_target"], run["timing_excluded_because"], run["target_excluded_because"]) == (
        2,
        "",
        "",
    )
    assert (run["epochs"], run["samples"]) == (3, 192)
    assert run["hardware"] == "Test CPU, 2 cores"
    assert runs.loc["baseline", "time_to_target_s"] == 80


def test_best_is_not_last_and_the_target_may_never_be_reached(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_1", top1=(0.2, 0.59, 0.4))
    run = run_frame(read_runs(tmp_path)).iloc[0]
    assert (run["best_score"], run["final_score"]) == (0.59, 0.4)
    assert math.isnan(run["time_to_target_s"])


def test_setting_is_shared_by_scan_levels_and_seeds_only(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "baseline")
    make_run(tmp_path, "group_2", seed=1)
    make_run(tmp_path, "group_2", epochs=90)
    settings = run_frame(read_runs(tmp_path)).set_index(["scan", "seed"])["setting"]
    assert settings["baseline", 0] == settings["group_2", 1]
    assert settings["group_2", 0] != settings["group_2", 1]


def test_other_runs_are_listed_not_dropped(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_1")
    for status, seed in (("failed", 1), ("interrupted", 2), ("running", 3)):
        make_run(tmp_path, "group_1", status=status, seed=seed)
    (tmp_path / ".hydra").mkdir()
    (tmp_path / "notes.txt").write_text("not a run")
    assert run_frame(read_runs(tmp_path))["seed"].tolist() == [0]
    others = unfinished_runs(tmp_path)
    assert others["status"].tolist() == ["failed", "interrupted", "interrupted"]
    text = to_markdown(summary_table(run_frame(read_runs(tmp_path))), others)
    for run_id in others["run_id"]:
        assert run_id in text


def test_eval_curves_have_every_evaluation_of_every_run(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "baseline")
    make_run(tmp_path, "group_5", top1=(0.1, 0.2))
    curves = eval_curves(run_frame(read_runs(tmp_path)))
    assert curves["val_score"].tolist() == [0.3, 0.6, 0.9, 0.1, 0.2]
    assert curves["scan"].tolist() == ["baseline"] * 3 + ["group_5"] * 2
    assert eval_curves(run_frame([])).empty and with_seconds(eval_curves(run_frame([]))).empty


def test_from_disk_to_speed_up(tmp_path: Path, make_run: MakeRun) -> None:
    for seed in (0, 1):
        make_run(tmp_path, "baseline", seed=seed, epoch_s=40)
        make_run(tmp_path, "group_2", seed=seed, epoch_s=10)
    table = summary_table(run_frame(read_runs(tmp_path)))
    assert table["speedup_over_baseline"].tolist() == [1, 4]
    assert table["ms_ssim"].iloc[0] == 1 and np.isnan(table["ms_ssim"].iloc[1])


def test_an_empty_folder_gives_empty_tables(tmp_path: Path) -> None:
    assert run_frame(read_runs(tmp_path)).empty
    assert unfinished_runs(tmp_path).empty
    assert summary_table(run_frame(read_runs(tmp_path))).empty


def test_a_missing_folder_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere.*experiments\.train"):
        read_runs(tmp_path / "nowhere")


def test_a_wrong_row_is_named_by_file_and_line(tmp_path: Path, make_run: MakeRun) -> None:
    path = make_run(tmp_path, "group_1") / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[3]["val_top1"] = 61.5
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RunError, match=r"rows\.jsonl, line 4: .*val_top1=61\.5"):
        run_frame(read_runs(tmp_path))


def test_a_finished_run_without_an_evaluation_is_an_error(tmp_path: Path, make_run: MakeRun) -> None:
    path = make_run(tmp_path, "group_1") / "rows.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(RunError, match=r"rows\.jsonl has no eval row"):
        run_frame(read_runs(tmp_path))


def test_a_finished_run_without_its_configuration_is_an_error(tmp_path: Path, make_run: MakeRun) -> None:
    (make_run(tmp_path, "group_1") / "config.yaml").unlink()
    with pytest.raises(RunError, match=r"config\.yaml is not there"):
        run_frame(read_runs(tmp_path))


def test_facts_of_a_run_are_computed_once_for_all_pages(
    tmp_path: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, figures and captions read the facts from columns, however many there are."""
    for scan in ("baseline", "group_2"):
        make_run(tmp_path / "runs", scan)
        make_run(tmp_path / "runs", scan, echo=ExampleBeforeConfig(name="example_before", factor=2, buffer=8))
    asked: Counter[tuple[str, str]] = Counter()
    for name in ("facts_of", "reached_of", "quality_of"):
        compute = getattr(frame, name)

        def counted(run: Run, *more: Any, name: str = name, compute: Callable[..., Any] = compute) -> Any:
            asked[name, run.manifest.run_id] += 1
            return compute(run, *more)

        monkeypatch.setattr(frame, name, counted)
    with only_figures(["echo_bytes", "side_by_side"], pictures=()):
        report = write_report(tmp_path / "runs", tmp_path / "none", tmp_path / "out", pages=PAGES)
    assert len(report.figures) == 2 and len(report.tables) > 4
    assert len(asked) == 3 * 4 and set(asked.values()) == {1}
