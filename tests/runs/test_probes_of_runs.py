"""Probes of whole runs: what trials train on beside an echo, and which bytes count as theirs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from policy_runs import EPOCHS, POLICIES, interrupted_at

from pcr_exp.loading.batch import Batch
from pcr_exp.loading.echo.variants import ExampleAfterConfig, ExampleBeforeConfig
from pcr_exp.policies.policy import StaticScan, TrialProbe
from pcr_exp.records.index import RecordIndex
from pcr_exp.runs import session, validation
from pcr_exp.runs.data import open_data, training_loader
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.report import Progress
from pcr_exp.training.trainer import Trainer
from pcr_exp.training.weights import load_checkpoint

Trial = Callable[[int], AbstractContextManager[Iterator[Batch]]]


@pytest.mark.parametrize("echo", [ExampleBeforeConfig(factor=2.5, buffer=20), ExampleAfterConfig(factor=2)])
@pytest.mark.parametrize(("judge", "num_steps", "num_batches"), [("train", 3, 3), ("tune", 9, 4)])
def test_a_trial_takes_the_fresh_images_that_the_next_epoch_begins_with(
    configure: Any, monkeypatch: pytest.MonkeyPatch, echo: Any, judge: str, num_steps: int, num_batches: int
) -> None:
    tried: dict[int, list[Batch]] = {}

    def trial_losses(_: Trainer, open_trial: Trial, candidates: Any, **given: Any) -> dict[int, float]:
        for group in candidates:
            with open_trial(group) as stream:
                tried[group] = list(stream)
        assert (given["step"], given["steps_per_epoch"]) == (14, opened.loader.num_batches)
        assert (given["evaluate"] is not None) == (judge == "tune")
        return dict.fromkeys(candidates, 0.5)

    monkeypatch.setattr(validation, "trial_losses", trial_losses)
    config = configure(scan=POLICIES["tuned"], echo=echo)
    data = open_data(config)
    with session.open_session(config, data, torch.device("cpu"), Processes()) as opened:
        found = opened.probes.run(TrialProbe((1, 10), num_steps, judge), Progress(step=14, epoch=2))
    assert found == {1: 0.5, 10: 0.5}
    with training_loader(configure(), data, StaticScan(5), Processes()) as loader:
        wanted = [batch.labels.tolist() for batch in loader.batches(2, 0, 3)][:num_batches]
    for group, batches in tried.items():
        assert [batch.labels.tolist() for batch in batches] == wanted
        assert {(batch.epoch, batch.num_repeats, batch.group) for batch in batches} == {(2, 0, group)}


def test_probes_of_a_resumed_session_are_left_out_of_the_time_to_read(
    configure: Any, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is read by the first probe of each session; reads of images are timed without it."""
    timed: list[int] = []
    columns = session.stage_columns

    def noted(*args: Any, bytes_read: int, **named: Any) -> dict[str, float | None]:
        timed.append(bytes_read)
        return columns(*args, bytes_read=bytes_read, **named)

    monkeypatch.setattr(session, "stage_columns", noted)
    config = configure(scan=POLICIES["cosine"], training__epochs=EPOCHS)
    directory = RunDirectory(interrupted_at(9, config))
    saved = load_checkpoint(directory.checkpoint_path)
    sample = sum(index.prefix_bytes(record, 10) for record in range(2))
    assert saved["progress"]["probe_bytes"] == sample
    timed.clear()
    run_training(config, progress=False)
    last = read_rows(directory.rows_path)[-1]
    assert last["probe_bytes"] == 2 * sample
    assert timed[-1] == last["bytes_read"] - saved["bytes_read"] - sample
