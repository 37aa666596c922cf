"""Trackers; for W&B, the real files of an offline run are read back."""

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from pcr_exp.config.commands import TrackingConfig
from pcr_exp.errors import ConfigError
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.tracking import FINISH_TIMEOUT_S, START_TIMEOUT_S, Tracker, group_of, open_tracker
from pcr_exp.runs.train_run import run_training
from pcr_exp.system.provenance import SWEEP_VARIABLE

BLOCK_BYTES, HEADER_BYTES, FILE_HEADER_BYTES = 32768, 7, 7


def wandb_records(path: Path) -> Iterator[Any]:
    """Parse a `.wandb` file: a file header, then protobuf records in LevelDB's log format."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, message = FILE_HEADER_BYTES, b""
    while position + HEADER_BYTES <= len(data):
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < HEADER_BYTES:
            position += left
            continue
        _crc, length, kind = struct.unpack_from("<IHB", data, position)
        position += HEADER_BYTES
        if position + length > len(data):
            return  # the record is still being written
        message += data[position : position + length]
        position += length
        if kind in (1, 4):  # a whole message, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            yield record
            message = b""


def finished_records(path: Path) -> list[Any]:
    """Return the records of a finished run; wandb's service may write the last ones just after `finish`."""
    deadline_s = time.monotonic() + 10
    while True:
        records = list(wandb_records(path))
        kinds = {record.WhichOneof("record_type") for record in records}
        if {"history", "exit"} <= kinds or time.monotonic() > deadline_s:
            return records
        time.sleep(0.05)


def items(updates: Any) -> dict[str, Any]:
    return {u.key or "/".join(u.nested_key): json.loads(u.value_json) for u in updates}


def exit_codes(records: list[Any]) -> list[int]:
    """Return the codes of the exit records. A run has one, whose position among the last records may vary."""
    return [r.exit.exit_code for r in records if r.WhichOneof("record_type") == "exit"]


@pytest.fixture
def offline_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.mark.usefixtures("offline_home")
def test_an_offline_run_leaves_curves_config_and_figures(configure: Any, tmp_path: Path) -> None:
    config = configure(tracking__name="wandb", tracking__tags=["test"], training__eval_every_epochs=2)
    outcome = run_training(config, progress=False)
    rows = read_rows(outcome.folder / "rows.jsonl")
    (folder,) = (outcome.folder / "wandb").glob("offline-run-*")
    (file,) = folder.glob("*.wandb")
    records = finished_records(file)

    history = [items(r.history.item) for r in records if r.WhichOneof("record_type") == "history"]
    assert len(history) == len(rows)
    for logged, row in zip(history, rows, strict=True):
        assert logged["step"] == row["step"]
        assert logged["time_s"] == pytest.approx(row["train_s"] + row["wait_s"] + row["probe_s"])
        shown = {key: value for key, value in logged.items() if key.startswith(f"{row['kind']}/")}
        wanted = {f"{row['kind']}/{key}": v for key, v in row.items() if key not in ("kind", "step")}
        assert shown == pytest.approx(wanted)

    (run,) = (r.run for r in records if r.WhichOneof("record_type") == "run")
    assert (run.run_id, run.project, list(run.tags)) == (outcome.run_id, "pcr-exp", ["test"])
    logged_config = items(run.config.update)
    assert logged_config["training"]["learning_rate"] == 0.02
    assert logged_config["run_path"] == str(outcome.folder)
    assert logged_config["labels"] == {"storage": "unlimited", "scan": "group_5", "network": "unlimited"}
    axes = {r.metric.glob_name: r.metric.step_metric for r in records if r.HasField("metric")}
    assert (axes["train/*"], axes["policy/*"]) == ("step", "step")
    assert axes["eval/*"] == axes["eval_same/*"] == "time_s", "W&B draws accuracy over seconds"
    assert outcome.run_id.startswith(f"{run.run_group}-s0-"), "the seeds of a setting are one group"
    summary: dict[str, Any] = {}
    for record in records:
        if record.WhichOneof("record_type") == "summary":
            summary |= items(record.summary.update)
    assert summary["val_top1"] == rows[-1]["val_top1"]
    assert exit_codes(records) == [0]
    assert not (tmp_path / "wandb").exists(), "its files lie in the run directory"


@pytest.mark.usefixtures("offline_home")
def test_figures_are_logged_as_images_and_a_second_session_keeps_the_id(tmp_path: Path) -> None:
    picture, table = tmp_path / "curve.png", tmp_path / "summary.csv"
    matplotlib.image.imsave(picture, np.zeros((3, 4, 3)))
    table.write_text("group,ms_ssim\n1,0.8\n5,0.98\n")
    for failed in (True, False):
        tracker = open_tracker(TrackingConfig(name="wandb"), "run-1", tmp_path, {})
        tracker.figure("top1", picture)
        tracker.log({"kind": "quality", "group": 5, "ms_ssim": 0.98})
        tracker.table("summary", table)
        tracker.artifact("quality of mine", [picture, table])
        tracker.finish(failed=failed)
        folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
        assert len(folders) == (1 if failed else 2)
        records = finished_records(next(folders[-1].glob("*.wandb")))
        logged: dict[str, Any] = {}
        for record in records:
            if record.WhichOneof("record_type") == "history":
                logged |= items(record.history.item)
        assert (logged["quality/group"], logged["quality/ms_ssim"]) == (5, 0.98)
        shown = json.loads((folders[-1] / "files" / logged["tables/summary/path"]).read_text())
        assert shown == {"columns": ["group", "ms_ssim"], "data": [[1, 0.8], [5, 0.98]]}
        kept = {
            r.request.log_artifact.artifact.name or r.artifact.name
            for r in records
            if r.HasField("artifact") or r.HasField("request")
        }
        assert "quality_of_mine" in kept
        image = folders[-1] / "files" / logged["figures/top1/path"]
        assert matplotlib.image.imread(image).shape[:2] == (3, 4)
        assert next(r.run.run_id for r in records if r.HasField("run")) == "run-1"
        assert exit_codes(records) == [int(failed)]
        if failed:
            time.sleep(1)  # wandb names folders by the second


class DeadRun:
    """Stand-in for the result of `wandb.init`, where W&B fails at everything."""

    def __getattr__(self, _: str) -> Any:
        raise OSError("no space left")

    def define_metric(self, *_: Any, **__: Any) -> None:
        pass


def test_an_outage_ends_no_run_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    modes: list[str] = []

    def start(**settings: Any) -> DeadRun:
        modes.append(settings["mode"])
        if settings["mode"] == "online":
            raise wandb.errors.CommError("no route to host")
        return DeadRun()

    monkeypatch.setattr(wandb, "init", start)
    monkeypatch.setattr(wandb, "teardown", lambda: modes.append("ended"))
    tracker = open_tracker(TrackingConfig(name="wandb", mode="online"), "run-1", tmp_path, {})
    assert modes == ["online", "ended", "offline"], "what cannot be uploaded is kept"
    tracker.log({"kind": "train", "step": 1, "loss": 2.0})
    tracker.figure("a", tmp_path / "missing.png")
    tracker.table("b", tmp_path / "missing.csv")
    tracker.artifact("c", [tmp_path / "missing.csv"])
    tracker.summary({"top1": 0.5})
    said = [record.message for record in caplog.records]
    assert (
        len(said) == 2 and "cannot be reached" in said[0] and "W&B failed (OSError: no space left)" in said[1]
    )
    tracker.finish(failed=True)


@pytest.mark.program
@pytest.mark.usefixtures("offline_home")
def test_a_server_that_never_answers_holds_up_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, but never answers
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", 40 * "0")
        started_s = time.monotonic()
        tracker = open_tracker(TrackingConfig(name="wandb", mode="online"), "run-1", tmp_path, {})
        assert time.monotonic() - started_s < 2 * START_TIMEOUT_S
        started_s = time.monotonic()
        for step in range(200):
            tracker.log({"kind": "train", "step": step, "loss": 2.0})
        assert time.monotonic() - started_s < 10
        started_s = time.monotonic()
        tracker.finish()
        assert time.monotonic() - started_s < 2 * FINISH_TIMEOUT_S
    assert list((tmp_path / "wandb").glob("*run-*")), "it is kept for `wandb sync`"


def test_the_runs_of_a_sweep_are_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    given: list[Any] = []
    monkeypatch.setattr(wandb, "init", lambda **settings: given.append(settings) or DeadRun())
    monkeypatch.setenv("WANDB_RUN_ID", "of-an-agent")
    run_id = "photos-s3-0123abcd"
    open_tracker(TrackingConfig(name="wandb"), run_id, tmp_path, {})
    monkeypatch.setenv(SWEEP_VARIABLE, "/somewhere/grid")
    open_tracker(TrackingConfig(name="wandb"), run_id, tmp_path, {})
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    open_tracker(TrackingConfig(name="wandb"), run_id, tmp_path, {})
    assert [(each["group"], each["job_type"]) for each in given] == [
        ("photos", "photos"),
        ("grid", "photos"),
        ("grid", "photos"),
    ]
    assert [each["id"] for each in given] == [run_id, run_id, "of-an-agent"]
    assert {each["name"] for each in given} == {run_id}


def test_waiting_for_uploads_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    given: list[Any] = []
    monkeypatch.setattr(wandb, "init", lambda **settings: given.append(settings["settings"]) or DeadRun())
    open_tracker(TrackingConfig(name="wandb"), "run-1", tmp_path, {})
    assert 0 < given[0].init_timeout <= 20 and 0 < given[0].finish_timeout <= 30


def test_without_a_login_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def refuse(**_: Any) -> None:
        raise wandb.errors.UsageError("api_key not configured (no-tty)")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(ConfigError, match=r"tracking.mode='online'.*no-tty.*tracking=wandb"):
        open_tracker(TrackingConfig(name="wandb", mode="online"), "run-1", tmp_path, {})
    with pytest.raises(ConfigError, match=r"tracking.mode='offline'.*no-tty\)\)\. Use tracking=none to"):
        open_tracker(TrackingConfig(name="wandb", mode="offline"), "run-1", tmp_path, {})


@pytest.mark.program
def test_no_tracker_needs_no_wandb(tmp_path: Path) -> None:
    program = (
        "import sys; import pcr_exp.runs.train_run; from pcr_exp.config.commands import TrackingConfig;"
        "from pcr_exp.runs.tracking import open_tracker; from pathlib import Path;"
        "t = open_tracker(TrackingConfig(name='none'), 'x', Path('.'), {});"
        "t.log({}); t.figure('a', Path('a')); t.table('a', Path('a')); t.artifact('a', []);"
        "t.summary({}); t.finish();"
        "print('wandb' in sys.modules)"
    )
    repo = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(repo)},
    )
    assert done.stdout == "False\n"
    assert list(tmp_path.iterdir()) == []
    assert type(open_tracker(TrackingConfig(name="none"), "x", tmp_path, {})) is Tracker


def test_seeds_of_a_setting_of_speed_are_a_group_too() -> None:
    ids = "photos-s3-0123abcd-t89abcdef", "photos-s4-4567abcd-t89abcdef"
    assert {group_of(run_id) for run_id in ids} == {"photos-t89abcdef"}
    assert group_of("photos-s3-0123abcd") == "photos"
