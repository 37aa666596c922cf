"""Whole runs in real processes: one directory, rows of all of them, the same end after an interruption."""

import dataclasses
import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gloo_processes import spawned

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.related_methods import GradientsConfig, NetworkConfig
from pcr_exp.errors import ConfigError
from pcr_exp.gradients.threelc import ThreeLCConfig
from pcr_exp.runs import session as combinations
from pcr_exp.runs.follow import share_of_state
from pcr_exp.runs.rows import Row, deterministic_part, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.columns import TRAFFIC
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.loop import Loop
from pcr_exp.training.trainer import Trainer
from pcr_exp.training.weights import weights_of

all_rows = Loop.rows


def interrupted_rows(loop: Loop) -> Iterator[Row]:
    """Like `Loop.rows`, but only the second process is asked to stop, in the second epoch."""
    for row in all_rows(loop):
        yield row
        if row["kind"] == "eval" and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)


def train_both(_processes: Processes, whole: TrainConfig, interrupted: TrainConfig) -> list[str]:
    statuses = [run_training(whole, progress=False).status]
    Loop.rows = interrupted_rows  # type: ignore[assignment,method-assign]
    try:
        run_training(interrupted, progress=False)
    except SystemExit:
        statuses.append("asked to stop")
    Loop.rows = all_rows  # type: ignore[method-assign]
    statuses.append(run_training(interrupted, progress=False).status)
    statuses.append(run_training(interrupted, progress=False).status)
    return statuses


@pytest.fixture(scope="module")
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.program
@pytest.mark.parametrize("mode", ["ddp", "server"])
def test_a_run_of_two_processes(mode: str, configure: Any, tmp_path: Path) -> None:
    def config(folder: str) -> TrainConfig:
        return dataclasses.replace(
            configure(
                runs_root=str(tmp_path / folder),
                records__root=str(tmp_path / f"{mode}-records"),  # prepared by the first process alone
                training__log_every_steps=1,
            ),
            gradients=ThreeLCConfig(mode=mode, sparsity=1.5),
            network=NetworkConfig(name="lan", latency_ms=0.5, bandwidth_mbit_per_s=1000),
            world_size=2,
        )

    folders = f"{mode}-whole", f"{mode}-interrupted"
    statuses = spawned(train_both, 2, config(folders[0]), config(folders[1]))
    assert statuses == [["finished", "asked to stop", "finished", "skipped"]] * 2
    runs = [next((tmp_path / folder).iterdir()) for folder in folders]
    assert f"threelc_{mode}_x2-lan_1000mbitps_0.5ms-s0" in runs[0].name
    whole, resumed = (read_rows(run / "rows.jsonl") for run in runs)
    assert deterministic_part(resumed) == deterministic_part(whole)
    last = whole[-1]
    # 52 images, 26 per process, in two epochs; in batches of 16 and 10.
    assert last["samples_seen"] == 2 * 52
    assert last["step"] == 4
    assert last.keys() >= {*TRAFFIC, "network_s"}
    assert last["network_s"] > 4 * 0.5e-3
    assert last["pushed_values"] == 2 * 4 * sum_of_parameters(runs[0])
    assert 0 < last["pushed_plain_values"] < last["pushed_values"] / 8
    assert 0 < last["pushed_bytes"] < last["pushed_values"]
    assert (last["pulled_bytes"] > 0) == (mode == "server")
    assert last["bytes_sent"] > last["pushed_bytes"] / 2
    both = [torch.load(run / "checkpoint.pt", weights_only=True) for run in runs]
    for name, value in both[0]["model"].items():
        assert torch.equal(value, both[1]["model"][name])
    reported = weights_of(both[0])
    if mode == "server":
        of_server = both[0]["exchange"]["server"]["weights"]
        assert all(torch.equal(reported[name], value) for name, value in of_server.items())
        assert not all(torch.equal(both[0]["model"][name], value) for name, value in of_server.items())
    else:
        assert reported.keys() == both[0]["model"].keys()
    (other,) = both[0]["others"]
    for name, value in both[0]["model"].items():
        if "running" not in name:
            assert torch.equal(value, other["model"][name])


def sum_of_parameters(run: Path) -> int:
    model = torch.load(run / "checkpoint.pt", weights_only=True)["model"]
    return sum(value.numel() for name, value in model.items() if "running" not in name and value.ndim)


def test_one_process_cannot_compress_what_nobody_sends(configure: Any, tmp_path: Path) -> None:
    config = dataclasses.replace(configure(runs_root=str(tmp_path / "alone")), gradients=ThreeLCConfig())
    with pytest.raises(ConfigError, match=r"gradients=threelc .*there is only one process"):
        run_training(config, progress=False)
    assert not (tmp_path / "alone").exists()


def test_bounds_cannot_follow_an_optimizer_elsewhere(configure: Any) -> None:
    config = dataclasses.replace(
        configure(),
        activations=QuantiseConfig(),
        gradients=ThreeLCConfig(mode="server"),
        world_size=2,
    )
    for name in ("injected_errors", "error_bounded"):
        config.activations.name = name
        with pytest.raises(
            ConfigError, match=rf"activations={name} with gradients\.mode=server: .*bounds=fixed"
        ):
            combinations.check_bounds(config)
    config.activations.bounds = "fixed"
    combinations.check_bounds(config)


def test_scaled_losses_are_not_compressed(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(configure(), gradients=GradientsConfig(name="onebit"))
    trainer = Trainer(torch.nn.Linear(1, 1), config.training, device=torch.device("cpu"), seed=0)
    combinations.check_precision(config, trainer)
    monkeypatch.setattr(trainer.scaler, "is_enabled", lambda: True)
    with pytest.raises(ConfigError, match=r"training\.amp=true with gradients=onebit .*training\.amp=false"):
        combinations.check_precision(config, trainer)


# Runs that resume with another number of processes.


def watched_run(
    _processes: Processes, config: TrainConfig, seen: Path, stop_after: int | None = None
) -> dict[str, Any]:
    """Train and save a fingerprint of every training batch by update and slot; optionally stop early."""
    torch.set_num_threads(1)
    update = Trainer.update

    def watched(trainer: Trainer, images: torch.Tensor, labels: torch.Tensor, **given: Any) -> float:
        key = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
        with (seen / f"{given['step']}-{given['slot']}").open("x") as file:  # fails if it exists
            file.write(key)
        return update(trainer, images, labels, **given)

    def stopping(loop: Loop) -> Iterator[Row]:
        for row in all_rows(loop):
            yield row
            if row["kind"] == "train" and row["step"] == stop_after:
                os.kill(os.getpid(), signal.SIGTERM)

    Trainer.update = watched  # type: ignore[method-assign]
    Loop.rows = stopping  # type: ignore[assignment,method-assign]
    try:
        outcome = run_training(config, progress=False)
    except SystemExit:
        return {"status": "asked to stop"}
    finally:
        Trainer.update, Loop.rows = update, all_rows  # type: ignore[method-assign]
    return {"status": outcome.status, "run": outcome.folder.name}


@pytest.mark.program
def test_a_run_goes_on_with_another_number_of_processes(configure: Any, tmp_path: Path) -> None:
    """Four processes, then two, then one: images, pixels and counters equal those of a single process."""

    def config(folder: str, world_size: int) -> TrainConfig:
        return dataclasses.replace(
            configure(
                runs_root=str(tmp_path / folder),
                training__batch_size=5,
                training__global_batch_size=20,
                training__log_every_steps=1,
                loader__lanes=4,
            ),
            world_size=world_size,
        )

    seen = {folder: tmp_path / f"seen-{folder}" for folder in ("alone", "elastic")}
    for folder in seen.values():
        folder.mkdir()
    alone = watched_run(Processes(), config("alone", 1), seen["alone"])
    assert (
        spawned(watched_run, 4, config("elastic", 4), seen["elastic"], 2) == [{"status": "asked to stop"}] * 4
    )
    assert (
        spawned(watched_run, 2, config("elastic", 2), seen["elastic"], 4) == [{"status": "asked to stop"}] * 2
    )
    assert watched_run(Processes(), config("elastic", 1), seen["elastic"]) == alone
    assert alone["status"] == "finished"
    found = [{path.name: path.read_text() for path in folder.iterdir()} for folder in seen.values()]
    assert found[0] == found[1]
    assert found[0].keys() == {f"{step}-{slot}" for step in range(6) for slot in range(4)}
    rows = [read_rows(next((tmp_path / folder).iterdir()) / "rows.jsonl") for folder in seen]
    for one, other in zip(*rows, strict=True):
        for key in ("kind", "epoch", "step", "samples_seen", "samples_trained", "learning_rate"):
            assert one[key] == other[key], key
        # Sums are rounded in another order. The third update normalises only three images at a time, which
        # may amplify the difference to any size.
        if one["step"] < 3:
            assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
    last, last_alone = rows[1][-1], rows[0][-1]
    # With four processes, up to three records are read by two of them; with two processes, one record.
    assert last_alone["record_bytes"] <= last["record_bytes"] < 2 * last_alone["record_bytes"]
    assert last["bytes_read"] >= last["record_bytes"]


def test_checkpoints_of_as_many_processes_are_given_back_as_they_were() -> None:
    states = [{"progress": rank} for rank in range(3)]
    assert [share_of_state(states, rank, 3) for rank in range(3)] == states


def test_each_of_more_processes_takes_over_a_part_of_the_mean_loss() -> None:
    counted = {"step": 3, "samples_seen": 20, "interval_start": {}}
    mean = {"total": 30.0, "num_images": 20}
    state = {"progress": {**counted, "epoch_loss": mean, "interval_loss": mean}, "exchange": {}}
    of_two = [share_of_state([state], rank, 2)["progress"] for rank in (0, 1)]
    assert [each["samples_seen"] for each in of_two] == [20, 0], "what was counted is counted once"
    assert all(each["epoch_loss"] == {"total": 15.0, "num_images": 10.0} for each in of_two)


def test_fewer_processes_share_out_what_more_of_them_counted() -> None:
    """Of four processes, the first of two continues the first and third, and the second the others."""
    mean = {"total": 1.0, "num_images": 1}
    states: list[dict[str, Any]] = [
        {
            "progress": {
                "samples_seen": counted,
                "epoch_loss": mean,
                "interval_loss": mean,
                "interval_start": {"samples_seen": counted, "wall_s": 7.0},
            },
            "exchange": {"wire": {"traffic": {"sent": counted}, "waited_s": 0.0}},
            **dict.fromkeys(combinations.COUNTED, counted),
        }
        for counted in (1, 10, 100, 1000)
    ]
    for rank, counted in enumerate((101, 1010)):
        found = share_of_state(states, rank, 2)
        assert found["progress"]["samples_seen"] == counted
        assert found["progress"]["interval_start"] == {"samples_seen": counted, "wall_s": 7.0}
        assert found["exchange"]["wire"]["traffic"] == {"sent": counted}
        assert {found[name] for name in combinations.COUNTED} == {counted}
