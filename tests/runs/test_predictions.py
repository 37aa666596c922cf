"""Predictions of every image are saved with the run, read back, and packed with its set."""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.functional as tm
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import RunError
from pcr_exp.runs import train_run
from pcr_exp.runs.data import open_data
from pcr_exp.runs.packed import pack_runs
from pcr_exp.runs.predictions import (
    PREDICTIONS_FILE,
    Predictions,
    image_hash,
    predictions_below,
    read_predictions,
    write_predictions,
)
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.session import open_session
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.evaluate import per_image, tally_batches
from pcr_exp.training.task import Classification, Tally

Configure = Callable[..., TrainConfig]


def of_four_images() -> Predictions:
    return Predictions(
        np.array([image_hash(f"{i}.jpg") for i in range(4)], dtype=np.uint64),
        np.array([0, 1, 2, 0], dtype=np.int32),
    )


def keep(predictions: Predictions, epoch: int, score: float | None, eval_group: str = "full") -> None:
    loss = np.array([0.1, 2.5, 1e-4, 30.0], dtype=np.float32) + epoch
    correct = np.array([True, False, True, epoch % 2 == 0])
    predictions.keep(epoch, eval_group, score, label=predictions.label, correct=correct, loss=loss)


@pytest.fixture
def trained(configure: Configure) -> Path:
    """A run with four evaluations at two eval groups."""
    config = configure(
        scan=ScanConfig(name="group_1", group=1),
        training__epochs=4,
        training__eval_groups=["full", "same"],
        training__learning_rate=0.2,
    )
    return run_training(config, progress=False).folder


def test_they_are_what_the_reported_rows_add_up(trained: Path) -> None:
    frame = read_predictions(trained.parent)
    rows = [row for row in read_rows(trained / "rows.jsonl") if row["kind"] == "eval"]
    for eval_group in ("full", "same"):
        of_group = [row for row in rows if row["eval_group"] == eval_group]
        best = max(of_group, key=lambda row: row["val_top1"])
        kept = frame[frame["eval_group"] == eval_group]
        assert sorted(set(kept["epoch"])) == sorted({best["epoch"], 4})
        for epoch, images in kept.groupby("epoch"):
            (row,) = [row for row in of_group if row["epoch"] == epoch]
            assert images["correct"].mean() == row["val_top1"]
            assert images["loss"].mean() == pytest.approx(row["val_loss"], rel=1e-3)
            assert np.allclose(images["probability"], np.exp(-images["loss"]))
            assert images["image"].is_unique and len(images) == row["num_val"] == 20


def test_images_are_those_of_the_records_in_their_order(trained: Path, configure: Configure) -> None:
    records = open_data(configure()).val
    prefixes = [records.read_prefix(number, 1) for number in range(len(records.index.records))]
    frame = read_predictions(trained.parent)
    of_one = frame[(frame["epoch"] == 4) & (frame["eval_group"] == "same")]
    assert list(of_one["image"]) == [image_hash(id_) for prefix in prefixes for id_ in prefix.ids]
    assert list(of_one["label"]) == [int(v) for prefix in prefixes for v in prefix.labels["photo"]]


def test_they_are_in_no_other_order_than_the_model_saw(configure: Configure) -> None:
    """An oracle for the pairing: run the model again and compare image by image."""
    config = configure()
    with open_session(config, open_data(config), torch.device("cpu"), Processes()) as session:
        session._global_scores(5)
        assert session.predictions is not None
        (kept,) = session.predictions.evaluations
        model = session.trainer.model.eval()
        with torch.inference_mode():
            logits = torch.cat([session.trainer.forward(b.images) for b in session.validation._full.cached])
        labels = torch.from_numpy(session.predictions.label).long()
        probability = logits.softmax(1)[torch.arange(len(labels)), labels]
        assert np.allclose(np.exp(-kept.loss.astype(np.float32)), probability.numpy(), atol=1e-3)
        assert kept.correct.tolist() == (logits.argmax(1) == labels).tolist()
        assert model is session.trainer.model


def test_baseline_keeps_its_two_equal_groups_once(configure: Configure) -> None:
    config = configure(
        scan=ScanConfig(name="baseline", encoding="baseline", group=1),
        training__epochs=1,
        training__eval_groups=["full", "same"],
    )
    folder = run_training(config, progress=False).folder
    frame = read_predictions(folder.parent)
    full, same = (frame[frame["eval_group"] == group]["loss"].tolist() for group in ("full", "same"))
    assert full == same
    with np.load(folder / PREDICTIONS_FILE) as file:
        assert file[f"{folder.name}/loss"].shape == (1, 20)


@pytest.mark.parametrize("scores", [[0.1, 0.7, 0.3], [0.5, 0.5, 0.5], [None, 0.2, None], [0.1, 0.2, 0.9]])
def test_the_last_and_the_best_stay(scores: list[float | None]) -> None:
    predictions = of_four_images()
    for epoch, score in enumerate(scores, start=1):
        keep(predictions, epoch, score)
        keep(predictions, epoch, 1 - (score or 0), "same")
    known = [-1 if score is None else score for score in scores]
    best = 1 + known.index(max(known))
    assert [e.epoch for e in predictions.evaluations if e.eval_group == "full"] == sorted({best, 3})


def test_an_evaluation_that_is_made_again_takes_the_place_of_the_first() -> None:
    """This happens after an interruption between an evaluation and its checkpoint."""
    predictions = of_four_images()
    keep(predictions, 1, 0.9)
    state = predictions.state()
    keep(predictions, 2, 0.1)
    resumed = of_four_images()
    resumed.load_state(state)
    keep(resumed, 2, 0.95)
    assert [(e.epoch, e.score) for e in resumed.evaluations] == [(2, 0.95)]


def test_a_resumed_run_ends_with_those_of_one_that_was_not_interrupted(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"training__epochs": 3, "training__eval_groups": ["full", "same"]}
    whole = run_training(configure(**changes), progress=False).folder
    config = configure(**changes, runs_root=str(tmp_path / "interrupted"))
    save = train_run.save_checkpoint

    def lost(path: Path, state: dict[str, Any]) -> None:
        save(path, state)
        if state["progress"]["epoch"] == 2:
            raise RunError("the machine is gone")

    monkeypatch.setattr(train_run, "save_checkpoint", lost)
    with pytest.raises(RunError, match="gone"):
        run_training(config, progress=False)
    monkeypatch.undo()
    resumed = run_training(config, progress=False).folder
    assert (resumed / PREDICTIONS_FILE).read_bytes() == (whole / PREDICTIONS_FILE).read_bytes()


def test_a_run_that_dies_behind_its_last_checkpoint_has_them(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(training__epochs=1)

    def dies(*_: Any) -> None:
        raise RunError("the machine is gone")

    monkeypatch.setattr(train_run, "write_layers", dies)
    with pytest.raises(RunError, match="gone"):
        run_training(config, progress=False)
    monkeypatch.undo()
    folder = run_training(config, progress=False).folder
    assert len(read_predictions(folder.parent)) == 20


def test_a_packed_set_gives_the_same_frame_and_shares_images(
    configure: Configure, tmp_path: Path, trained: Path
) -> None:
    other = configure(
        scan=ScanConfig(name="group_1", group=1), training__epochs=1, seed=1, training__eval_groups=["full"]
    )
    run_training(other, progress=False)
    before = read_predictions(trained.parent)
    out = tmp_path / "packed"
    pack_runs(trained.parent, out)
    pandas_testing_equal(read_predictions(out), before)
    single = sum(path.stat().st_size for path in trained.parent.glob(f"*/{PREDICTIONS_FILE}"))
    assert (out / PREDICTIONS_FILE).stat().st_size < single
    again = tmp_path / "again"
    pack_runs(out, again)
    assert (again / PREDICTIONS_FILE).read_bytes() == (out / PREDICTIONS_FILE).read_bytes()


def pandas_testing_equal(one: Any, other: Any) -> None:
    import pandas as pd

    pd.testing.assert_frame_equal(one, other)


def test_a_set_that_is_added_to_keeps_its_own(configure: Configure, tmp_path: Path) -> None:
    roots = tmp_path / "a", tmp_path / "b"
    for seed, root in enumerate(roots):
        run_training(configure(training__epochs=1, seed=seed, runs_root=str(root)), progress=False)
    out = tmp_path / "packed"
    pack_runs(roots[0], out)
    ids = pack_runs(roots[1], out, add=True)
    assert len(ids) == 2 and sorted(predictions_below(out)) == ids
    # A set without predictions replaces it and leaves nothing of the earlier one.
    for path in roots[0].glob(f"*/{PREDICTIONS_FILE}"):
        path.unlink()
    pack_runs(roots[0], out)
    assert not (out / PREDICTIONS_FILE).exists()


def test_a_run_without_them_is_named(trained: Path) -> None:
    (trained / PREDICTIONS_FILE).unlink()
    with pytest.raises(RunError, match=f"no predictions of {trained.name}.*Train it again"):
        read_predictions(trained.parent, [trained.name])
    assert read_predictions(trained.parent).empty


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    predictions = of_four_images()
    keep(predictions, 1, 0.5)
    path = tmp_path / "run" / PREDICTIONS_FILE
    path.parent.mkdir()
    write_predictions(path, {"run": predictions})
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):  # wherever the damage is, reading succeeds or raises RunError
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(RunError):
            read_predictions(tmp_path)
    write_predictions(path, {"run": predictions, "other": predictions})
    with pytest.raises(RunError, match="holds predictions of 2 runs; wanted those of its own"):
        read_predictions(tmp_path)
    for damaged in (whole[: len(whole) // 2], b"", whole[:60] + b"\0" * 40 + whole[100:]):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=f"{PREDICTIONS_FILE} holds no predictions"):
            read_predictions(tmp_path)


def test_arrays_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    predictions = of_four_images()
    keep(predictions, 1, 0.5)
    predictions.image = predictions.image[:3]
    predictions.label = predictions.label[:3]
    path = tmp_path / PREDICTIONS_FILE
    with pytest.raises(ValueError, match="reshape"):
        write_predictions(path, {"run": predictions})
    arrays = {"images/k/image": np.zeros(3, np.uint64), "images/k/label": np.zeros(3, np.int32)}
    arrays |= {"run/images": np.array("k"), "run/loss": np.zeros((1, 4), np.float16)}
    arrays |= {"run/correct": np.zeros((1, 1), np.uint8), "run/evaluations": np.zeros(1)}
    np.savez(path, **arrays)
    with pytest.raises(RunError, match="do not fit each other"):
        read_predictions(tmp_path)


def test_probabilities_of_all_classes_are_kept_where_the_task_has_them(configure: Configure) -> None:
    """They determine every metric of the rows, including one class against another."""
    balanced = {"task__name": "balanced", "dataset__targets": {"balanced_accuracy": 0.6}}
    folder = run_training(configure(**balanced, training__epochs=2), progress=False).folder
    (kept,) = predictions_below(folder.parent).values()
    rows = [row for row in read_rows(folder / "rows.jsonl") if row["kind"] == "eval"]
    for scores in kept.evaluations:
        shares = scores.probabilities
        assert (
            shares is not None
            and shares.dtype == np.float16
            and np.allclose(shares.sum(axis=1), 1, atol=0.01)
        )
        of_label = shares[np.arange(len(kept.label)), kept.label].astype(np.float32)
        assert np.allclose(of_label, np.exp(-scores.loss.astype(np.float32)), atol=1e-3)
        (row,) = [row for row in rows if row["epoch"] == scores.epoch]
        labels, share = kept.label == 1, shares[:, 1].astype(np.float32)
        if len(row["val_recall"]) == 2:
            wanted = tm.auroc(torch.tensor(share), torch.tensor(labels).long(), task="binary").item()
            assert row["val_auc"] == pytest.approx(wanted, abs=2e-3)


def test_labels_in_another_order_are_a_defect() -> None:
    predictions = of_four_images()
    with pytest.raises(RunError, match=r"not those of the records.*report it"):
        predictions.keep(1, "full", 0.5, label=predictions.label[::-1], correct=np.ones(4), loss=np.ones(4))


@given(st.lists(st.floats(0, 12, width=32), min_size=2, max_size=300))
def test_ranks_of_images_survive_sixteen_bits(losses: list[float]) -> None:
    """AUC ranks images by margin, which follows from the loss; except for ties, no pair changes its order."""
    loss = np.array(losses, dtype=np.float32)
    kept = loss.astype(np.float16).astype(np.float32)
    assert (np.diff(kept[np.argsort(loss, kind="stable")]) >= 0).all()
    assert np.allclose(kept, loss, rtol=2**-11, atol=2**-24)


def test_area_under_roc_follows_from_them() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (400,), generator=generator)
    logits = torch.randn(400, 2, generator=generator) * 3
    logits[torch.arange(400), labels] += 1
    values = Classification().tally(logits, labels).values
    loss = values["loss"].astype(np.float16).astype(np.float64)
    margin = -np.log(np.expm1(loss)) * np.where(values["label"] == 1, 1, -1)
    wanted = tm.auroc(logits.softmax(1)[:, 1], labels, task="binary").item()
    found = tm.auroc(torch.tensor(margin).sigmoid(), labels, task="binary").item()
    assert found == pytest.approx(wanted, abs=1e-4)


class Batch:
    num_replaced = 1
    images = torch.eye(3)
    labels = torch.arange(3)


def test_images_that_stood_in_for_others_are_not_taken_for_them(caplog: pytest.LogCaptureFixture) -> None:
    found = tally_batches(torch.nn.Identity(), lambda images: images, Classification(), [Batch()])
    with caplog.at_level(logging.WARNING):
        assert per_image([found]) is None
    assert "damaged images were replaced" in caplog.text


def test_a_task_that_keeps_nothing_of_images_has_none() -> None:
    share = tally_batches(torch.nn.Identity(), lambda images: images, Classification(), [Batch()])
    plain = dataclasses.replace(share, tallies=[Tally(share.tallies[0].totals, {})], num_replaced=0)
    assert per_image([plain]) is None


def test_no_file_name_is_published(trained: Path) -> None:
    """Names of a user's files may contain names of people."""
    assert b".jpg" not in (trained / PREDICTIONS_FILE).read_bytes()
    with np.load(trained / PREDICTIONS_FILE) as file:
        words = {name: str(file[name]) for name in file.files if file[name].dtype.kind == "U"}
    assert list(words) == [f"{trained.name}/images"]


def test_manifest_and_rows_are_as_they_were(trained: Path) -> None:
    assert "predictions" not in json.loads((trained / "manifest.json").read_text())


def test_an_evaluation_made_twice_is_kept_once() -> None:
    predictions = of_four_images()
    keep(predictions, 1, 0.9)
    keep(predictions, 1, 0.8)
    assert [(e.epoch, e.score) for e in predictions.evaluations] == [(1, 0.8)]


def test_equal_losses_do_not_make_predictions_equal() -> None:
    """Two equal highest scores have one loss, but one class of them is predicted."""
    predictions, loss = of_four_images(), np.full(4, 0.7)
    for epoch, correct in ((1, [True] * 4), (2, [False] * 4)):
        predictions.keep(
            epoch, "full", 1 / epoch, label=predictions.label, correct=np.array(correct), loss=loss
        )
    restored = of_four_images()
    restored.load_state(predictions.state())
    assert [each.correct.tolist() for each in restored.evaluations] == [[True] * 4, [False] * 4]
