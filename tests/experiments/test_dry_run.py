"""What a command would take, said without doing any of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from composing import SCHEMAS, compose
from jpeg_photos import PHOTO, to_jpeg
from runner_processes import call

from pcr_exp.records.prepare import prepare_records
from pcr_exp.runners.activation_study import plan_activations
from pcr_exp.runners.dry_run import PLANS, WOULD_RUN, Planned, plan
from pcr_exp.runners.gpu import plan_gpu
from pcr_exp.runners.outcomes import Outcome, amounts_in_words, total_amounts
from pcr_exp.runners.pace import finished_paces
from pcr_exp.runners.report import plan_report
from pcr_exp.runs.packed import ROWS_FILE, RUNS_FILE

OF_THE_PAPERS: dict[str, Callable[[Any], Planned]] = {
    "activation_study": plan_activations,
    "gpu": plan_gpu,
    "report": plan_report,
}


@pytest.mark.parametrize("runner", sorted(SCHEMAS))
def test_every_runner_says_what_it_would_do_and_does_nothing(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = OF_THE_PAPERS.get(runner, plan)(compose(runner))
    assert planned.status == WOULD_RUN and planned.facts
    assert list(tmp_path.iterdir()) == []


def test_a_runner_without_a_plan_says_where_it_would_write() -> None:
    assert plan(SimpleNamespace(out="results/mine")).facts == ["into results/mine"]
    assert plan(SimpleNamespace()).facts == ["nothing is known of it"]
    assert {*PLANS} <= {*SCHEMAS.values()}


@pytest.mark.program
def test_a_sweep_is_added_up_and_leaves_nothing_but_its_own_list(tmp_path: Path) -> None:
    roots = [
        f"dataset.root={tmp_path}/photos",
        f"records.root={tmp_path}/records",
        f"runs_root={tmp_path}/runs",
    ]
    sweep = [f"hydra.sweep.dir={tmp_path}/sweep", "scan=baseline,group_1", "-m", "--dry-run"]
    done = call("train", "training.image_size=64", *roots, *sweep)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1,536 images an epoch") == 2 and "in all: about " in done.stdout
    assert "of disk" in done.stdout and "records are not made yet" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]


def a_set(folder: Path, *, image_size: int, wall_s: float) -> None:
    """A packed set of one run that trained on 200 images and waited for one second."""
    config = {"model": {"name": "resnet18"}, "training": {"image_size": image_size}}
    (folder / RUNS_FILE).write_text(json.dumps({"a": {"config": config}}))
    row: dict[str, Any] = {"run_id": "a", "wall_s": wall_s, "wait_s": 1.0, "samples_seen": 200}
    pd.DataFrame([row | {"wall_s": 0.5}, row]).to_csv(folder / ROWS_FILE, index=False)


def test_seconds_are_those_of_finished_runs_like_it(tmp_path: Path) -> None:
    a_set(tmp_path, image_size=64, wall_s=5.0)
    assert finished_paces(tmp_path) == [(("resnet18", 64, 1), pytest.approx(4 / 200))]
    assert finished_paces(tmp_path / "nothing") == []


def test_storage_that_is_slower_than_training_decides(tmp_path: Path) -> None:
    """And what is not known is said to be not known."""
    config = compose("train", "model=resnet18", "training.image_size=37", f"records.root={tmp_path}")
    planned = plan(config)
    assert "seconds are not known: no finished run of resnet18 at 37 px" in planned.words
    assert "seconds" not in planned.amounts and "read_bytes" not in planned.amounts
    weights = 11.7e6 * 4 * 2  # resnet18's and their momentum; its head is of 1,000 classes
    assert planned.amounts["disk_bytes"] == pytest.approx(weights, rel=0.01)


def test_a_run_of_a_minute_takes_a_minute(tmp_path: Path) -> None:
    a_set(tmp_path, image_size=64, wall_s=41.0)
    for split, name in (("train", "cat"), ("train", "dog"), ("val", "cat"), ("val", "dog")):
        for number in range(8):
            path = tmp_path / "photos" / split / name / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(to_jpeg(PHOTO.crop((number, 0, number + 64, 48)), quality=80))
    given = ("dataset=folder", f"dataset.root={tmp_path}/photos", f"records.root={tmp_path}/records")
    made = compose("prepare", *given)
    prepare_records(made.dataset, made.records)
    given += ("model=resnet18", "training.image_size=64", "training.epochs=1000", f"runs_root={tmp_path}")
    whole = plan(compose("train", *given)).amounts
    assert whole["seconds"] > 60 and whole["read_bytes"] > 0
    minute = plan(compose("train", *given, "training.stop_after_s=60"))
    assert minute.amounts["seconds"] == 60 and "stops after 60 s" in minute.facts
    assert minute.amounts["read_bytes"] == pytest.approx(whole["read_bytes"] * 60 / whole["seconds"])
    assert minute.amounts["disk_bytes"] == whole["disk_bytes"]
    long = plan(compose("train", *given, "training.stop_after_s=1e9"))
    assert long.amounts == whole, "all epochs are done before"


def test_photographs_that_are_scored_as_they_lie_are_not_encoded() -> None:
    planned = plan(compose("evaluate", "dataset=folder", "dataset.root=/photos", "split=all"))
    assert "5 levels of photos" in planned.words and "no records are made" in planned.words


def test_a_run_of_a_minute_of_what_nobody_trained(tmp_path: Path) -> None:
    given = ("training.image_size=37", "training.stop_after_s=60", f"records.root={tmp_path}")
    assert plan(compose("train", *given)).amounts["seconds"] == 60


def test_totals_leave_out_what_one_job_does_not_know() -> None:
    jobs = [
        Outcome("a", WOULD_RUN, "", {"seconds": 7200.0, "disk_bytes": 1e6}),
        Outcome("b", WOULD_RUN, "", {"seconds": 3600.0}),
    ]
    assert total_amounts(jobs) == {"seconds": 10800.0}
    assert amounts_in_words({"disk_bytes": 2.5e9, "seconds": 90}) == "about 1.5 minutes, 2.50 GB of disk"
    assert total_amounts([Outcome("c", "finished")]) == {}
