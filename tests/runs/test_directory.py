"""Ownership of run directories, and what their manifests state."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import RunError, StorageError
from pcr_exp.numerics import NUMERICS
from pcr_exp.records.index import RecordEntry, RecordIndex
from pcr_exp.runs import directory as directory_module
from pcr_exp.runs.directory import claim, planned_directory
from pcr_exp.runs.identity import run_id
from pcr_exp.runs.manifest import (
    Manifest,
    begin_at,
    describe_records,
    end,
    new_manifest,
    read_manifest,
    write_manifest,
)
from pcr_exp.system.lock import hold
from pcr_exp.system.provenance import git_state, gpu_model

CPU = torch.device("cpu")
IMAGES = "0123456789abcdef"


def described(config: TrainConfig, previous: Manifest | None) -> Manifest:
    return new_manifest(config, CPU, previous, name=run_id(config, IMAGES), images=IMAGES)


@pytest.mark.parametrize(
    ("written", "status"),
    [
        ("running", "interrupted"),
        ("interrupted", "interrupted"),
        ("failed", "failed"),
        ("finished", "finished"),
    ],
)
def test_how_the_last_session_ended(configure: Any, written: str, status: str) -> None:
    config = configure()
    with claim(config, IMAGES) as directory:
        assert directory.status == "new"
        manifest = described(config, None)
        manifest.status = written
        write_manifest(directory.manifest_path, manifest)
    with claim(config, IMAGES) as again:
        assert again.path == directory.path == Path(config.runs_root) / run_id(config, IMAGES)
        assert again.status == status


def test_one_holder_at_a_time(configure: Any) -> None:
    with (
        claim(configure(), IMAGES),
        pytest.raises(RunError, match="is in use by process"),
        claim(configure(), IMAGES),
    ):
        pytest.fail("two holders")


def test_an_edited_configuration_is_refused(configure: Any) -> None:
    with claim(configure(), IMAGES) as directory:
        text = directory.config_path.read_text()
    directory.config_path.write_text(text.replace("momentum: 0.9", "momentum: 0.5"))
    with (
        pytest.raises(RunError, match=r"belongs to another configuration: training.momentum differ"),
        claim(configure(), IMAGES),
    ):
        pytest.fail("claimed")
    directory.config_path.write_text("a: 1")
    with pytest.raises(RunError, match="its groups differ"), claim(configure(), IMAGES):
        pytest.fail("claimed")


def test_settings_without_effect_may_change(configure: Any) -> None:
    with claim(configure(), IMAGES):
        pass
    with claim(configure(loader__num_workers=3), IMAGES) as directory:
        assert "num_workers: 3" in directory.config_path.read_text()


def test_a_folder_of_something_else_is_left_alone(configure: Any) -> None:
    config = configure()
    path = Path(config.runs_root) / run_id(config, IMAGES)
    path.mkdir(parents=True)
    (path / "thesis.tex").write_text("mine")
    with (
        pytest.raises(RunError, match=r"not a run's directory .*thesis.tex.*Move it away"),
        claim(config, IMAGES),
    ):
        pytest.fail("claimed")
    assert [entry.name for entry in path.iterdir()] == ["thesis.tex"]


def test_a_file_in_its_place(configure: Any) -> None:
    config = configure()
    Path(config.runs_root).mkdir()
    (Path(config.runs_root) / run_id(config, IMAGES)).write_text("mine")
    with pytest.raises(RunError, match="not a run's directory"), claim(config, IMAGES):
        pytest.fail("claimed")


def test_a_directory_whose_maker_died_at_once_is_new(configure: Any) -> None:
    config = configure()
    path = Path(config.runs_root) / run_id(config, IMAGES)
    path.mkdir(parents=True)
    (path / "lock").touch()
    with claim(config, IMAGES) as directory:
        assert directory.status == "new"


def test_a_manifest_tells_what_ran_where(configure: Any, tmp_path: Path) -> None:
    config = configure(seed=7)
    write_manifest(tmp_path / "manifest.json", described(config, None))
    values = json.loads((tmp_path / "manifest.json").read_text())
    assert values["run_id"] == run_id(config, IMAGES)
    assert (values["status"], values["seed"], values["gpu"]) == ("running", 7, None)
    assert values["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert values["started_at"].endswith("+00:00")
    assert "hostname" not in values


def test_a_resumed_run_keeps_when_it_began(configure: Any) -> None:
    first = described(configure(), None)
    first.started_at, first.train_fingerprint = "2020-01-01T00:00:00+00:00", "abc"
    second = described(configure(), first)
    third = described(configure(), second)
    assert third.started_at == "2020-01-01T00:00:00+00:00"
    assert len(third.resumed_at) == 2
    assert third.train_fingerprint == "abc"


def test_a_resumed_run_is_at_the_group_that_it_left(configure: Any) -> None:
    first = described(configure(), None)
    first.scan_group += 1
    assert described(configure(), first).scan_group == first.scan_group


def index(fingerprint: str) -> RecordIndex:
    entry = RecordEntry("0.pcr", 4, (10, 20, 30, 40, 60), 8)
    return RecordIndex("photos", "train", "pcr", fingerprint, 5, {"photo": ["a", "b"]}, [entry])


def test_records_are_described_and_may_not_change_under_a_run(configure: Any) -> None:
    manifest = described(configure(), None)
    describe_records(manifest, index("one"), index("0"), index("two"))
    assert (manifest.num_train, manifest.mean_prefix_bytes) == (4, 15)
    resumed = described(configure(), manifest)
    describe_records(resumed, index("one"), index("0"), index("two"))
    assert resumed.records_key == manifest.records_key
    with pytest.raises(RunError, match="began with val records of fingerprint two, but it is three now"):
        describe_records(resumed, index("one"), index("0"), index("three"))


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "is not there"),
        ("{", "is damaged"),
        ("[]", "fields missing"),
        ('{"run_id": "x", "colour": 1}', r"unknown \['colour'\]"),
    ],
)
def test_a_manifest_that_cannot_be_read(tmp_path: Path, content: str | None, wanted: str) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RunError, match=wanted):
        read_manifest(tmp_path / "manifest.json")


def test_a_manifest_from_before_a_field_came_can_be_read(configure: Any, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_manifest(path, described(configure(), None))
    values = json.loads(path.read_text())
    del values["cached_share"]
    path.write_text(json.dumps(values))
    assert read_manifest(path).cached_share is None
    del values["seed"]
    path.write_text(json.dumps(values))
    with pytest.raises(RunError, match=r"fields missing \['seed'\]"):
        read_manifest(path)


def test_a_status_that_there_is_not(configure: Any, tmp_path: Path) -> None:
    manifest: Manifest = described(configure(), None)
    manifest.status = "done"
    write_manifest(tmp_path / "manifest.json", manifest)
    with pytest.raises(RunError, match=r"status='done'; wanted running, finished"):
        read_manifest(tmp_path / "manifest.json")


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)


def test_the_gpu_is_named_only_if_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU of {device}")
    assert gpu_model(CPU) is None
    assert gpu_model(torch.device("cuda")) == "GPU of cuda"


def finish(config: TrainConfig) -> Path:
    with claim(config, IMAGES) as directory:
        manifest = described(config, directory.manifest())
        manifest.status = "finished"
        write_manifest(directory.manifest_path, manifest)
        return directory.path


def test_a_sweep_over_workers_is_one_directory_each(configure: Any) -> None:
    """Such a sweep is for measuring seconds; all of its runs learn the same."""
    shared = finish(configure())
    folders = [shared]
    for num_workers in (1, 2):
        with claim(configure(loader__num_workers=num_workers), IMAGES) as directory:
            assert directory.status == "new"
        folders.append(finish(configure(loader__num_workers=num_workers)))
    assert len(set(folders)) == 3
    assert all(folder.name.startswith(f"{shared.name}-t") for folder in folders[1:])
    for num_workers, folder in enumerate(folders):  # repeating the sweep finds all of them
        with claim(configure(loader__num_workers=num_workers), IMAGES) as directory:
            assert (directory.path, directory.status) == (folder, "finished")


def test_an_interrupted_run_is_continued_with_other_workers(configure: Any) -> None:
    with claim(configure(), IMAGES) as directory:
        write_manifest(directory.manifest_path, described(configure(), None))
    more = configure(loader__num_workers=2)
    with claim(more, IMAGES) as again:
        assert (again.path, again.status) == (directory.path, "interrupted")
    assert finish(more) == directory.path
    with claim(more, IMAGES) as done:  # the same command finds its finished run
        assert (done.path, done.status) == (directory.path, "finished")


def test_two_jobs_of_a_sweep_over_workers_at_once(configure: Any) -> None:
    more = configure(loader__num_workers=2)
    with claim(configure(), IMAGES) as one, claim(more, IMAGES) as other:
        assert other.path.name.startswith(f"{one.path.name}-t")
        with pytest.raises(RunError, match="is in use by process"), claim(more, IMAGES):
            pytest.fail("two holders")


def test_a_directory_that_was_just_made_is_waited_for(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    path = Path(config.runs_root) / run_id(config, IMAGES)
    path.mkdir(parents=True)
    monkeypatch.setattr(directory_module, "_SOON_S", 0.1)
    with (
        hold(path / "lock", RunError),
        pytest.raises(RunError, match="is in use by process"),
        claim(configure(loader__num_workers=2), IMAGES),
    ):
        pytest.fail("claimed")


def test_sessions_are_added_and_not_overwritten(configure: Any, tmp_path: Path) -> None:
    first = described(configure(), None)
    begin_at(first, 0)
    end(first, "interrupted")
    second = described(configure(loader__num_workers=2), first)
    assert second.timing_key is None
    begin_at(second, 40)
    end(second, "finished")
    path = tmp_path / "manifest.json"
    write_manifest(path, second)
    read = read_manifest(path)
    assert read == second
    assert [(s.status, s.from_step, s.settings["loader.num_workers"]) for s in read.sessions] == [
        *(("interrupted", 0, 0), ("finished", 40, 2)),
    ]
    assert all(s.finished_at and s.cpu and s.command and s.packages for s in read.sessions)
    assert (first.timing_is_mixed, read.timing_is_mixed) == (False, True)
    assert read.timing_key not in (None, *(s.timing_key for s in read.sessions))
    assert (read.numerics, read.images_key) == (NUMERICS, IMAGES)


def test_a_session_of_another_version_is_refused(configure: Any, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_manifest(path, described(configure(), None))
    path.write_text(path.read_text().replace('"from_step"', '"first_step"'))
    with pytest.raises(RunError, match=r"not a manifest of this version: .*first_step"):
        read_manifest(path)


def test_a_folder_that_cannot_be_made_is_named(configure: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with (
        pytest.raises(StorageError, match="file"),
        claim(configure(runs_root=str(tmp_path / "file" / "runs")), "0123"),
    ):
        pass


def test_the_planned_directory_is_the_one_that_is_claimed(configure: Any) -> None:
    """If a finished run has other speed settings, the planned directory is a new one."""
    first = configure()
    with claim(first, "0123") as directory:
        manifest = new_manifest(first, torch.device("cpu"), None, name=directory.path.name, images="0123")
        write_manifest(directory.manifest_path, replace(manifest, status="finished"))
    assert planned_directory(first, "0123").status == "finished"
    other = configure(loader__num_workers=2)
    planned = planned_directory(other, "0123")
    with claim(other, "0123") as directory:
        assert planned.path == directory.path and planned.status == "new"
