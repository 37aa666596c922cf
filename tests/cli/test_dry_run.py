"""Dry runs estimate what a command would take, without doing any of it."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from composing import SCHEMAS, compose
from jpeg_photos import PHOTO, to_jpeg
from omegaconf import OmegaConf
from runner_processes import call

from pcr_exp.cli import dry_run, schemas
from pcr_exp.cli import train as training
from pcr_exp.cli.dry_run import WOULD_RUN, Planned
from pcr_exp.cli.jobs import Outcome, describe_amounts, total_amounts
from pcr_exp.cli.train import find_pace
from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import ConfigError, DatasetError, RecordError
from pcr_exp.records.prepare import prepare_records
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.manifest import new_manifest, write_manifest

MODULES = {name: f"pcr_exp.cli.{name}" for name in schemas()} | {
    "activation_study": "experiments.comet.study",
    "report": "experiments.report",
}
"""Module that plans each command."""


def plan(runner: str, *overrides: str) -> Planned:
    """Return the plan of the command with these overrides."""
    planned: Planned = import_module(MODULES[runner]).plan(compose(runner, *overrides))
    return planned


@pytest.mark.parametrize("runner", sorted(SCHEMAS))
def test_every_runner_says_what_it_would_do_and_does_nothing(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = plan(runner)
    assert planned.status == WOULD_RUN and planned.facts
    assert list(tmp_path.iterdir()) == []


@pytest.mark.program
def test_a_sweep_is_added_up_and_leaves_nothing(tmp_path: Path) -> None:
    """Neither the list of an earlier sweep in its folder is touched, nor a cluster asked."""
    (tmp_path / "sweep").mkdir()
    for name in ("job-0000.json", "sweep.json"):
        (tmp_path / "sweep" / name).write_text("of an earlier sweep")
    roots = [
        f"dataset.root={tmp_path}/photos",
        f"records.root={tmp_path}/records",
        f"runs_root={tmp_path}/runs",
    ]
    slurm = ["hydra/launcher=slurm", "hydra.launcher.cluster=local"]
    sweep = [f"hydra.sweep.dir={tmp_path}/sweep", "scan=baseline,group_1", *slurm, "-m", "--dry-run"]
    done = call("train", "training.image_size=64", *roots, *sweep)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1,536 images an epoch") == 2 and "in all: about " in done.stdout
    assert "of disk" in done.stdout and "records are not made yet" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]
    left = {path.name: path.read_text() for path in (tmp_path / "sweep").iterdir()}
    assert left == dict.fromkeys(("job-0000.json", "sweep.json"), "of an earlier sweep")


@pytest.fixture(autouse=True)
def a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop timing after one piece of work."""
    monkeypatch.setattr(dry_run, "TIMED_S", 0.0)


@pytest.fixture
def photos(tmp_path: Path) -> tuple[str, ...]:
    """Create 16 photographs to train on and 16 to validate on, and return overrides that name them."""
    for split, name in (("train", "cat"), ("train", "dog"), ("val", "cat"), ("val", "dog")):
        for number in range(8):
            path = tmp_path / "photos" / split / name / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(to_jpeg(PHOTO.crop((number, 0, number + 64, 48)), quality=80))
    return ("dataset=folder", f"dataset.root={tmp_path}/photos", f"records.root={tmp_path}/records")


def finished_run(config: TrainConfig, name: str, *, wall_s: float, cpu: str | None = None) -> None:
    """Write a finished run with these settings that trained on 200 images and waited for one second."""
    folder = Path(config.runs_root) / name
    folder.mkdir(parents=True)
    OmegaConf.save(OmegaConf.structured(config), folder / "config.yaml")
    manifest = new_manifest(config, torch.device("cpu"), None, name=name, images=None)
    manifest = replace(manifest, status="finished", cpu=cpu or manifest.cpu)
    write_manifest(RunDirectory(folder).manifest_path, manifest)
    row = {"wall_s": wall_s, "wait_s": 1.0, "samples_seen": 200}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")


def test_seconds_are_those_of_finished_runs_like_it_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose("train", f"runs_root={tmp_path}", "training.image_size=64")
    finished_run(config, "here", wall_s=5.0)
    finished_run(config, "elsewhere", wall_s=2.0, cpu="another")
    finished_run(replace(config, training=replace(config.training, image_size=32)), "small", wall_s=3.0)
    finished_run(config, "damaged", wall_s=1.0)
    (tmp_path / "damaged" / "manifest.json").write_text("{}")
    pace = find_pace(config)
    assert pace.seconds_per_image == pytest.approx(4 / 200)
    assert "50 images/s, the median of 1 finished run of" in pace.words and "on this machine" in pace.words
    none = find_pace(replace(config, runs_root=str(tmp_path / "nothing")))
    assert none.seconds_per_image is not None and "timed for a second on this machine" in none.words

    small = compose(
        "train",
        f"runs_root={tmp_path / 'nothing'}",
        "training.image_size=32",
        "model=torchvision",
        "model.name=alexnet",
    )
    refused = find_pace(small)
    assert refused.seconds_per_image is None and "cannot take a batch" in refused.words

    def refuses(_: TrainConfig) -> float:
        raise ConfigError("no such model")

    monkeypatch.setattr(training, "update_seconds", refuses)
    unknown = find_pace(replace(config, runs_root=str(tmp_path / "nothing")))
    assert (unknown.seconds_per_image, unknown.words) == (None, "seconds are not known: no such model")


@pytest.mark.parametrize("runner", ["train", "prepare", "quality", "tolerance", "evaluate", "throughput"])
def test_a_folder_that_is_not_there_is_an_error(runner: str, tmp_path: Path) -> None:
    root = [] if runner in ("tolerance", "throughput") else [f"records.root={tmp_path}"]
    with pytest.raises(DatasetError, match="nowhere does not exist"):
        plan(runner, "dataset=folder", f"dataset.root={tmp_path}/nowhere", *root)


def test_records_that_nobody_makes_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no records can be opened at"):
        plan("train", f"records.root={tmp_path}", "records.auto_prepare=false")


def test_images_are_counted_where_they_lie(tmp_path: Path, photos: tuple[str, ...]) -> None:
    few = ("dataset.tune_fraction=0",)
    made = plan("prepare", *photos, *few)
    assert "32 images, twice their size on disk" in made.words
    sizes = sum(path.stat().st_size for path in tmp_path.rglob("*.jpg"))
    assert made.amounts["disk_bytes"] == 2 * sizes and made.amounts["seconds"] > 0
    folds = plan("prepare", *photos, "dataset.num_folds=2")
    assert "2 folds" in folds.words and "32 images, twice their size on disk" in folds.words
    assert folds.amounts["disk_bytes"] == 2 * made.amounts["disk_bytes"]
    trained = plan("train", *photos, *few, "training.image_size=32", "training.epochs=1")
    assert "16 images an epoch" in trained.words and "records are not made yet" in trained.words
    assert trained.amounts["seconds"] > 0
    seen = plan("evaluate", *photos, *few, "split=all", "model=shufflenet_v2_x0_5", "image_size=32")
    assert "5 levels of photos" in seen.words and "no records are made" in seen.words
    assert "32 images" in seen.words and seen.amounts["seconds"] > 0
    unmeasured = plan("quality", *photos, few[0], "groups=[1,10]", "max_images=5")
    assert "5 of 16 images of photos at 2 groups" in unmeasured.words
    assert "seconds are not known" in unmeasured.words and not unmeasured.amounts
    assert [path.name for path in tmp_path.iterdir()] == ["photos"], "nothing was made"


def test_quality_times_an_image_of_records(photos: tuple[str, ...]) -> None:
    made = compose("prepare", *photos)
    prepare_records(made.dataset, made.records)
    planned = plan("quality", *photos, "groups=[1,10]")
    assert "16 of 16 images" in planned.words and planned.amounts["seconds"] > 0
    assert "compared with them" in plan("prepare", *photos).words


def test_what_is_not_known_is_said_to_be_not_known(tmp_path: Path) -> None:
    planned = plan("train", "model=resnet18", "training.image_size=37", f"records.root={tmp_path}")
    assert "read_bytes" not in planned.amounts
    weights = 11.7e6 * 4 * 2  # bytes of resnet18's weights and momentum; its head has 1,000 classes
    assert planned.amounts["disk_bytes"] == pytest.approx(weights, rel=0.01)
    assert "seconds are not known" in plan("demo").words


def test_a_run_of_a_minute_takes_a_minute(tmp_path: Path, photos: tuple[str, ...]) -> None:
    made = compose("prepare", *photos)
    prepare_records(made.dataset, made.records)
    given = (*photos, "model=resnet18", "training.image_size=64", "training.epochs=1000")
    given += (f"runs_root={tmp_path}/runs",)
    finished_run(compose("train", *given), "a", wall_s=41.0)
    whole = plan("train", *given).amounts
    assert whole["seconds"] > 60 and whole["read_bytes"] > 0
    minute = plan("train", *given, "training.stop_after_s=60")
    assert minute.amounts["seconds"] == 60 and "stops after 60 s" in minute.facts
    assert minute.amounts["read_bytes"] == pytest.approx(whole["read_bytes"] * 60 / whole["seconds"])
    assert minute.amounts["disk_bytes"] == whole["disk_bytes"]
    long = plan("train", *given, "training.stop_after_s=1e9")
    assert long.amounts == whole, "all epochs are done before"


def test_totals_leave_out_what_one_job_does_not_know() -> None:
    jobs = [
        Outcome("a", WOULD_RUN, "", {"seconds": 7200.0, "disk_bytes": 1e6}),
        Outcome("b", WOULD_RUN, "", {"seconds": 3600.0}),
    ]
    assert total_amounts(jobs) == {"seconds": 10800.0}
    assert describe_amounts({"disk_bytes": 2.5e9, "seconds": 90}) == "about 1.5 minutes, 2.50 GB of disk"
    assert total_amounts([Outcome("c", "finished")]) == {}


@pytest.mark.program
def test_a_setting_that_is_not_used_is_said_by_a_dry_run_too() -> None:
    done = call("train", "scan=schedule", "scan.group=7", "--dry-run")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: scan.group=7: scan=schedule does not use it. Leave it out" in done.stderr
