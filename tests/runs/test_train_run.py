"""Whole runs on real records: files, skipping, failing, interrupting, resuming."""

import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.training import ModelConfig
from pcr_exp.errors import ConfigError, LoaderError, PcrExpError, RunError
from pcr_exp.loading.echo.variants import ExampleBeforeConfig
from pcr_exp.policies.balanced import BalancedConfig
from pcr_exp.policies.plateau import PlateauConfig
from pcr_exp.policies.smallest import CosineConfig
from pcr_exp.records.dataset_facts import DatasetFacts
from pcr_exp.records.index import parse_index
from pcr_exp.runs import session, train_run
from pcr_exp.runs.data import open_data
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import Row, deterministic_part, read_rows
from pcr_exp.runs.session import Session
from pcr_exp.runs.train_run import RunOutcome, run_training
from pcr_exp.system import own_folder
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.trainer import Trainer

CLOCKS = ("train_s", "wait_s", "eval_s", "other_s")


def run(config: Any) -> tuple[RunOutcome, list[Row]]:
    outcome = run_training(config, progress=False)
    return outcome, read_rows(outcome.folder / "rows.jsonl")


def test_a_run_leaves_its_files(configure: Any) -> None:
    config = configure()
    outcome, rows = run(config)
    assert outcome.status == "finished"
    assert outcome.folder == Path(config.runs_root) / outcome.run_id
    facts = read_manifest(outcome.folder / "manifest.json").dataset_facts
    assert facts == DatasetFacts(
        num_images=80,
        num_classes=8,
        num_measured=80,
        width_px=64,
        height_px=64,
        short_side_px=64,
        quality=90,
        one_size=True,
        one_quality=True,
    )
    names = {path.name for path in outcome.folder.iterdir()}
    beside = {"log.txt", "checkpoint.pt", "predictions.npz"}
    assert names == {"manifest.json", "config.yaml", "rows.jsonl", *beside}
    assert [(r["kind"], r["epoch"], r["step"]) for r in rows] == [
        *(("train", 1, 3), ("eval", 1, 4), ("train", 2, 6), ("train", 2, 8), ("eval", 2, 8)),
    ]
    manifest = read_manifest(outcome.folder / "manifest.json")
    assert (manifest.status, manifest.error, manifest.num_train, manifest.num_val) == (
        "finished",
        None,
        52,
        20,
    )
    assert manifest.num_classes == 8
    assert manifest.finished_at is not None
    text = (outcome.folder / "log.txt").read_text()
    assert "epoch 2/2, read in full: val_top1" in text
    assert re.search(r"memory: up to 0\.\d+ MiB of record prefixes", text)


def test_the_clocks_add_up_and_bytes_are_the_index_s(configure: Any) -> None:
    config = configure(loader__num_workers=1)
    outcome, rows = run(config)
    for row in rows:
        assert sum(row[key] for key in CLOCKS) == pytest.approx(row["wall_s"], rel=0.01)
    assert all(rows[-1][key] > 0 for key in CLOCKS)
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    folder = next(Path(config.records.root).iterdir()) / "train" / "pcr"
    index = parse_index((folder / "index.json").read_bytes(), "index")
    assert rows[-1]["record_bytes"] == rows[-1]["bytes_read"] == 2 * index.epoch_bytes(5)
    assert manifest["mean_prefix_bytes"] * 52 * 2 == pytest.approx(rows[-1]["record_bytes"])
    assert rows[-1]["samples_seen"] == 2 * 52


def test_the_same_seed_gives_the_same_losses_at_any_number_of_workers(configure: Any, tmp_path: Path) -> None:
    _, rows = run(configure())
    _, again = run(configure(loader__num_workers=2, runs_root=str(tmp_path / "again")))
    _, other = run(configure(seed=1))
    assert deterministic_part(again) == deterministic_part(rows)
    assert deterministic_part(other) != deterministic_part(rows)


def test_baseline_reads_the_original_bytes(configure: Any) -> None:
    _, rows = run(configure(scan__name="baseline", scan__encoding="baseline", scan__group=1))
    _, low = run(configure(scan__name="group_1", scan__group=1))
    assert rows[-1]["record_bytes"] > 2 * low[-1]["record_bytes"]
    assert rows[-1]["num_val"] == low[-1]["num_val"] == 20


def test_a_finished_run_is_skipped_without_a_throttle(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A throttle creates an empty file in /dev/shm; a skipped run must not."""
    (shared := tmp_path / "shared").mkdir()
    monkeypatch.setattr(own_folder, "SHARED_MEMORY", shared)
    config = configure(training__epochs=1, storage__bandwidth_mib_per_s=100.0)
    run_training(config, progress=False)
    (mine,) = shared.iterdir()
    for left in mine.iterdir():
        left.unlink()
    assert run_training(config, progress=False).status == "skipped"
    assert list(mine.iterdir()) == []


def test_a_finished_run_is_skipped_without_its_data(configure: Any, tmp_path: Path) -> None:
    outcome, rows = run(configure())
    files = {path: path.read_bytes() for path in outcome.folder.iterdir()}
    again, same = run(configure(records__root=str(tmp_path / "gone"), dataset__root=str(tmp_path / "gone")))
    assert again == RunOutcome(outcome.run_id, outcome.folder, "skipped")
    assert same == rows
    assert {path: path.read_bytes() for path in outcome.folder.iterdir()} == files


@pytest.fixture
def whole(configure: Any, tmp_path: Path) -> list[Row]:
    """The deterministic part of an undisturbed run's rows."""
    return deterministic_part(run(configure(runs_root=str(tmp_path / "whole")))[1])


class Trouble:
    """Makes the update of a given step call a function first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def at(self, step: int, happen: Any) -> None:
        update = Trainer.update

        def troubled(trainer: Trainer, *args: Any, **kwargs: Any) -> float:
            if kwargs["step"] == step:
                happen()
            return update(trainer, *args, **kwargs)

        self._monkeypatch.setattr(Trainer, "update", troubled)

    def over(self) -> None:
        self._monkeypatch.undo()


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trouble]:
    yield Trouble(monkeypatch)


def only_folder(config: Any) -> RunDirectory:
    (folder,) = Path(config.runs_root).iterdir()
    return RunDirectory(folder)


def test_a_decoding_process_that_dies_during_an_update_fails_the_run_by_name(
    configure: Any, trouble: Trouble
) -> None:
    def kill_and_go_on() -> None:
        multiprocessing.active_children()[0].kill()
        time.sleep(0.5)  # it is dead when the next batch is requested

    config = configure(loader__num_workers=1)
    trouble.at(2, kill_and_go_on)
    with pytest.raises(LoaderError, match="a decoding process died"):
        run_training(config, progress=False)
    directory = only_folder(config)
    assert directory.status == "failed"
    assert directory.manifest().error.startswith("LoaderError: a decoding process died")  # type: ignore[union-attr]


def test_a_diverged_run_keeps_its_rows(configure: Any) -> None:
    config = configure(
        training__learning_rate=1e30, training__schedule="constant", training__log_every_steps=1
    )
    with pytest.raises(RunError, match="diverged"):
        run_training(config, progress=False)
    directory = only_folder(config)
    assert directory.manifest().error.startswith("RunError: the")  # type: ignore[union-attr]
    assert len(read_rows(directory.rows_path)) >= 1


def test_a_run_killed_before_it_could_say_so_needs_no_training_again(
    configure: Any, whole: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    outcome, _ = run(config)
    path = outcome.folder / "manifest.json"
    path.write_text(path.read_text().replace('"status": "finished"', '"status": "running"'))
    monkeypatch.setattr(Trainer, "update", lambda *_, **__: pytest.fail("trained again"))
    again, rows = run(config)
    assert again.status == "finished"
    assert deterministic_part(rows) == whole


def test_a_typing_error_leaves_no_directory(configure: Any) -> None:
    for changes in ({"model": ModelConfig(name="resnet19")}, {"training__device": "tpu"}):
        config = configure(**changes)
        with pytest.raises(ConfigError):
            run_training(config, progress=False)
        assert not Path(config.runs_root).exists()


def test_batches_that_the_model_cannot_take_fail_before_training(configure: Any) -> None:
    # 52 images in batches of 17: the last batch holds one image, of which batch norm sees 1 x 1 pixels.
    config = configure(training__batch_size=17, model=ModelConfig(name="shufflenet_v2_x0_5"))
    with pytest.raises(ConfigError, match="a batch of 1 image of 32 x 32 px"):
        run_training(config, progress=False)
    assert only_folder(config).status == "failed"


def test_a_damaged_checkpoint_is_an_error_and_no_fresh_start(configure: Any, trouble: Trouble) -> None:
    config = configure()
    trouble.at(5, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_training(config, progress=False)
    trouble.over()
    directory = only_folder(config)
    directory.checkpoint_path.write_bytes(b"half a checkpoint")
    with pytest.raises(RunError, match="cannot be read as a checkpoint"):
        run_training(config, progress=False)
    assert len(read_rows(directory.rows_path)) == 3


def test_damaged_records_fail_the_run_with_their_name(configure: Any, prepared: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(prepared / "records", tmp_path / "records")
    config = configure(records__root=str(tmp_path / "records"))
    record = next((tmp_path / "records").glob("*/train/pcr/*.pcr"))
    data = bytearray(record.read_bytes())
    data[len(data) // 4] ^= 1
    record.write_bytes(data)
    with pytest.raises(PcrExpError, match=record.name):
        run_training(config, progress=False)
    assert record.name in only_folder(config).manifest().error  # type: ignore[operator, union-attr]


def test_num_threads_is_set(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    monkeypatch.setattr(train_run, "open_data", lambda *_, **__: (_ for _ in ()).throw(RunError("enough")))
    with pytest.raises(RunError, match="enough"):
        run_training(configure(training__num_threads=3), progress=False)
    assert given == [3]


def test_a_session_saves_all_that_it_restores(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = []
    load = Session.load_state_dict
    monkeypatch.setattr(
        Session, "load_state_dict", lambda s, state: restored.append(sorted(state)) or load(s, state)
    )
    config = configure()
    outcome, _ = run(config)
    path = outcome.folder / "manifest.json"
    path.write_text(path.read_text().replace('"finished"', '"failed"'))
    run(config)
    assert restored == [
        [
            *("activations", "bytes_read", "cached_bytes", "clocks", "exchange", "format", "kept", "model"),
            *("normalization", "num_requests", "num_retries", "num_rows", "optimizer", "policy"),
            *("predictions", "progress", "scaler"),
        ]
    ]


def test_every_size_that_inputs_are_shrunk_to_is_tried_on_the_model(
    configure: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, int]] = []
    monkeypatch.setattr(session, "check_model", lambda *_, train_batches, **__: tried.extend(train_batches))
    config = configure(training__input_sizes=[16, 32], training__input_milestones=[1])
    with session.open_session(config, open_data(config), torch.device("cpu"), Processes()):
        pass
    assert {size_px for _, size_px in tried} == {16, 32}


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({}, False),
        ({"training__eval_groups": ["full", "renewed"]}, True),
        ({"scan": PlateauConfig(name="plateau", trial_steps=4)}, True),
        ({"scan": PlateauConfig(name="plateau", trial_steps=3)}, False),
        ({"scan": CosineConfig(name="cosine", num_images=18)}, True),
        ({"scan": CosineConfig(name="cosine", num_images=99)}, True),
        ({"scan": CosineConfig(name="cosine", num_images=17)}, False),
        ({"scan": BalancedConfig(name="balanced", floor=CosineConfig(name="cosine", num_images=18))}, True),
    ],
)
def test_a_batch_of_one_image_is_refused_before_training(
    configure: Callable[..., TrainConfig], settings: dict[str, Any], is_refused: bool
) -> None:
    """Batch norm needs several values per channel, also in probes and where statistics are renewed.

    Twice 52 images leave two for the last batch of 17; 52 leave one.
    """
    echo, model = ExampleBeforeConfig(factor=2), ModelConfig(name="resnet18")
    config = configure(echo=echo, model=model, training__batch_size=17, **settings)
    said = "cannot take a batch of 1 image of 32 x 32 px"
    with (
        pytest.raises(ConfigError, match=said) if is_refused else nullcontext(),
        session.open_session(config, open_data(config), torch.device("cpu"), Processes()),
    ):
        pass
