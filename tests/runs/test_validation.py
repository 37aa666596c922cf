"""Validation images: what is read, from where, and how often."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from gloo_processes import spawned

from pcr_exp.analysis.runs import evaluations_at, read_runs
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import ConfigError, RecordError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.runs.data import open_data, training_loader, validation_loader
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.session import open_session
from pcr_exp.runs.train_run import run_training
from pcr_exp.runs.validation import ValidationBatches
from pcr_exp.storage.throttle import ThrottledStorage
from pcr_exp.training.distributed.processes import Processes


@pytest.fixture
def val_loader(configure: Any) -> Any:
    config = configure(scan__group=1, storage__latency_ms=200.0)
    with validation_loader(config, open_data(config)) as loader:
        yield loader


@pytest.mark.parametrize("cache_bytes", [2**30, 0])
def test_each_evaluation_sees_every_image_once_and_the_same(
    val_loader: RecordLoader, cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    original = RecordLoader.batches
    monkeypatch.setattr(RecordLoader, "batches", lambda *args: reads.append(1) or original(*args))
    monkeypatch.setattr("pcr_exp.runs.validation.CACHE_BYTES", cache_bytes)
    batches = ValidationBatches(val_loader, 32)
    first, second = (torch.cat([batch.images for batch in batches]) for _ in range(2))
    assert first.shape == (20, 32, 32, 3)
    assert torch.equal(first, second)
    assert len(reads) == (1 if cache_bytes else 2)


def scores_of_a_team(processes: Processes, config: TrainConfig) -> tuple[Any, int, bool, list[Any]]:
    """Return scores, this process's number of images, whether its model is unchanged, and predictions."""
    torch.set_num_threads(1)
    config = dataclasses.replace(config, world_size=processes.world_size)
    with open_session(config, open_data(config), torch.device("cpu"), processes) as session:
        tensors = [*session.trainer.model.parameters(), *session.trainer.model.buffers()]
        for tensor in tensors:
            tensor.data += processes.rank  # as running statistics differ, and with a server the weights
        before = [tensor.clone() for tensor in tensors]
        scores = session._global_scores(2 + processes.rank)  # the group of the first process counts
        unchanged = all(torch.equal(*pair) for pair in zip(tensors, before, strict=True))
        cached = session.validation._full.cached
        kept = session.predictions.evaluations if session.predictions else []
        predictions = [(each.eval_group, each.correct.tolist(), each.loss.tolist()) for each in kept]
        return scores, sum(len(batch.labels) for batch in cached or ()), unchanged, predictions


def test_processes_share_the_images_and_score_them_to_the_last_bit(configure: Any) -> None:
    config = configure(training__batch_size=8, training__eval_groups=["full", "same"])
    alone, num_images, _, predictions = scores_of_a_team(Processes(), config)
    assert num_images == alone["full"]["num_val"] == 20
    team = spawned(scores_of_a_team, 2, config)
    assert [scores for scores, *_ in team] == [alone, alone]
    assert [num for _, num, _, _ in team] == [8, 12], "whole batches, of 8, 8 and 4 images"
    assert all(unchanged for _, _, unchanged, _ in team)
    assert len(predictions) == 2
    assert [kept for *_, kept in team] == [predictions, []], "the first process has those of all images"


def test_more_processes_than_batches(val_loader: RecordLoader) -> None:
    shares = [ValidationBatches(val_loader, 32, processes=Processes(rank, 4)) for rank in range(4)]
    assert [sum(len(batch.labels) for batch in share) for share in shares] == [0, 16, 0, 4]


def test_it_is_read_at_full_fidelity_and_never_throttled(configure: Any) -> None:
    throttled = configure(scan__group=1, storage__latency_ms=60_000.0, storage__name="slow")
    free = configure()
    pixels = []
    for config in (throttled, free):
        # Opening training records at that latency would take minutes; only the loader is tested.
        data = open_data(configure())
        assert data.val.index.encoding == "baseline"
        with validation_loader(config, data) as loader:
            batches: list[Batch] = list(ValidationBatches(loader, 32))
        assert {batch.group for batch in batches} == {1}
        pixels.append(torch.cat([batch.images for batch in batches]))
    assert torch.equal(*pixels)


def test_at_the_group_of_training_the_same_images_are_read_as_training_reads_them(configure: Any) -> None:
    config = configure(training__eval_groups=["full", "same"], scan__group=1)
    folder = run_training(config, progress=False).folder
    evaluated = [row for row in read_rows(folder / "rows.jsonl") if row["kind"] == "eval"]
    assert "epoch 2/2, read at group 1: val_top1" in (folder / "log.txt").read_text()
    assert [(row["epoch"], row["eval_group"]) for row in evaluated] == [
        *((1, "full"), (1, "same"), (2, "full"), (2, "same"))
    ]
    full, same = evaluated[-2:]
    assert full["num_val"] == same["num_val"] == 20
    assert full["val_loss"] != same["val_loss"], "group 1 is blurred"
    data = open_data(config)
    pixels = {}
    for group in (None, 1, 10):
        with validation_loader(config, data, "val", group) as loader:
            batches = list(loader.batches(0, 0, 1))
        pixels[group] = torch.cat([batch.images for batch in batches])
        assert {batch.group for batch in batches} == {group or 1}
    assert torch.equal(pixels[10], pixels[None]), "in the same order"
    assert not torch.equal(pixels[1], pixels[None])


def test_same_is_read_at_the_group_of_now(configure: Any) -> None:
    """At all scans, the images are those of `full`."""
    config = configure(training__eval_groups=["full", "same"])
    with open_session(config, open_data(config), torch.device("cpu"), Processes()) as session:
        low, whole = (session.validation.evaluate(session.trainer, group) for group in (1, 10))
    assert low["same"].scores["val_loss"] != low["full"].scores["val_loss"]
    assert whole["same"].scores["val_loss"] == whole["full"].scores["val_loss"]


def test_same_group_rows_are_no_evaluation_of_tables(configure: Any) -> None:
    config = configure(training__eval_groups=["full", "same"], scan__group=1)
    run_training(config, progress=False)
    (run,) = read_runs(config.runs_root)
    assert [row["eval_group"] for row in run.eval_rows] == ["full", "full"]
    assert [row["eval_group"] for row in evaluations_at("same", run.rows)] == ["same", "same"]


def test_baseline_records_have_one_fidelity(configure: Any) -> None:
    scan = ScanConfig(name="baseline", encoding="baseline", group=1)
    config = configure(training__eval_groups=["full", "same"], scan=scan, training__epochs=1)
    folder = run_training(config, progress=False).folder
    full, same = (row for row in read_rows(folder / "rows.jsonl") if row["kind"] == "eval")
    assert (folder / "log.txt").read_text().count("epoch 1/1, read ") == 1, "one score is said once"
    assert {key: full[key] for key in full if key.startswith("val_")} == {
        key: same[key] for key in same if key.startswith("val_")
    }


@pytest.mark.parametrize("cache_bytes", [2**30, 0])
def test_images_at_a_group_are_decoded_once_if_they_fit(
    configure: Any, cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcr_exp.runs.validation.CACHE_BYTES", cache_bytes)
    config = configure(training__eval_groups=["full", "same"])
    opened = []
    loader = validation_loader
    monkeypatch.setattr(
        "pcr_exp.runs.validation.validation_loader", lambda *args: opened.append(args) or loader(*args)
    )
    run_training(config, progress=False)
    assert len(opened) == (1 if cache_bytes else 2)


def test_training_bytes_are_counted_and_validation_s_are_not(configure: Any) -> None:
    config = configure()
    data = open_data(config)
    index_bytes = data.train.storage.counts().bytes_read
    assert index_bytes > 0
    from pcr_exp.policies.policy import StaticScan

    with validation_loader(config, data) as loader:
        list(loader.batches(0, 0, 1))
    assert data.train.storage.counts().bytes_read == index_bytes
    with training_loader(config, data, StaticScan(config.scan.group), Processes()) as loader:
        total = sum(batch.record_bytes for batch in loader.batches(0, 0, 1))
    assert data.train.storage.counts().bytes_read - index_bytes == total == data.train.index.epoch_bytes(5)


def test_a_label_that_the_records_lack(configure: Any) -> None:
    with pytest.raises(ConfigError, match=r"dataset.label='colour'.*have the labels focus, photo"):
        open_data(configure(dataset__label="colour"))


def test_without_auto_prepare_missing_records_are_an_error(configure: Any, tmp_path: Any) -> None:
    config = configure(records__root=str(tmp_path / "none"), records__auto_prepare=False)
    with pytest.raises(RecordError, match=r"experiments\.prepare"):
        open_data(config)


def test_records_elsewhere_are_read_and_never_made(configure: Any) -> None:
    config = configure()
    config.records.root = f"file://{config.records.root}"
    assert len(open_data(config).train.index.classes["photo"]) == 8


def test_validation_reads_with_as_many_in_flight_as_training_and_is_not_throttled(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(scan__group=1, storage__seek_ms=1.0, storage__reads_in_flight=9)
    with validation_loader(config, open_data(config)) as loader:
        monkeypatch.delattr(ThrottledStorage, "read")  # training would read through it
        assert loader._reading()[0] == 9
        assert len(next(loader.batches(0, 0, 1)).labels) > 0


def test_a_training_set_smaller_than_a_probe_s_sample_is_read_once(configure: Any) -> None:
    config = configure()
    data = open_data(config)
    with open_session(config, data, torch.device("cpu"), Processes()) as session:
        sample = session.probes._sample(1000)
        assert len(sample) == data.train.index.num_samples == 52
        assert session.probes._sample(1000) is session.probes._sample(8) is sample


def test_statistics_are_renewed_for_an_evaluation_alone(configure: Any) -> None:
    groups = ["full", "same", "renewed"]
    config = configure(training__eval_groups=groups, scan__group=1, training__epochs=1)
    plain = configure(training__eval_groups=["full"], scan__group=1, training__epochs=1)
    folders = [run_training(each, progress=False).folder for each in (config, plain)]
    rows, rows_without = (
        [row for row in read_rows(folder / "rows.jsonl") if row["kind"] == "eval"] for folder in folders
    )
    assert [row["eval_group"] for row in rows] == groups
    full, _, renewed = rows
    assert full["val_loss"] == rows_without[0]["val_loss"]
    assert renewed["val_loss"] != full["val_loss"], "group 1 is blurred, and its variances are smaller"
    assert "BatchNorm renewed, read in full: val_top1" in (folders[0] / "log.txt").read_text()
    with open_session(config, open_data(config), torch.device("cpu"), Processes()) as session:
        before = {name: tensor.clone() for name, tensor in session.trainer.model.state_dict().items()}
        drawn = torch.get_rng_state()
        session.validation.evaluate(session.trainer, 1)
        after = session.trainer.model.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert torch.equal(drawn, torch.get_rng_state())


def test_statistics_are_renewed_on_training_images_at_all_scans(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcr_exp.runs.validation.NUM_RENEWED_BY", 17)
    config = configure(training__eval_groups=["full", "renewed"], scan__group=1)
    with open_session(config, open_data(config), torch.device("cpu"), Processes()) as session:
        session.validation.evaluate(session.trainer, 1)
        renewing = session.validation._renewing
        assert renewing is not None
        assert [(len(batch.labels), batch.group) for batch in renewing] == [(16, 10)] * 2
        assert session.bytes_read() == 0, "these reads are part of evaluation"


def test_a_model_without_batch_norm_has_nothing_to_renew(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is said before training, not after its first epoch."""
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32**2, 8))
    monkeypatch.setattr("pcr_exp.runs.session.open_model", lambda *_: plain)
    config = configure(training__eval_groups=["full", "renewed"], training__epochs=1)
    with pytest.raises(ConfigError, match=r"training.eval_groups=.*no `renewed` with model=tiny"):
        run_training(config, progress=False)
    assert not list(Path(config.runs_root).glob("*/rows.jsonl"))
