"""The training loop on a fake loader: rows, clocks, checkpoints, resuming."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from training_loop import DETERMINISTIC, SCORES, FakeLoader, Run

from pcr_exp.errors import RunError
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import CosineProbe
from pcr_exp.system import MIB
from pcr_exp.system.process import StopWaiting
from pcr_exp.training.clocks import NAMES
from pcr_exp.training.loop import Stopping
from pcr_exp.training.report import Progress, Row, interval_rates
from pcr_exp.training.trainer import learning_rate


def kinds(rows: list[Row]) -> list[tuple[str, int, int]]:
    return [(row["kind"], row["epoch"], row["step"]) for row in rows]


def test_which_rows_come_and_when() -> None:
    rows = Run(eval_every_epochs=3).go()
    assert kinds(rows) == [
        *(("train", 1, 2), ("train", 2, 4), ("train", 2, 6), ("train", 3, 8)),
        *(("eval", 3, 9), ("train", 4, 10), ("train", 4, 12), ("eval", 4, 12)),
    ]


def test_an_evaluation_at_two_groups_has_two_rows_at_one_time() -> None:
    rows = Run(eval_every_epochs=4, eval_groups=["full", "same"]).go()
    full, same = (row for row in rows if row["kind"] == "eval")
    assert {key for key in full if full[key] != same[key]} == {"eval_group", "other_s", "wall_s"}
    assert (full["eval_group"], same["eval_group"], same["eval_s"]) == ("full", "same", 5)


def test_the_last_update_has_a_train_row() -> None:
    assert kinds(Run(log_every_steps=5, eval_every_epochs=4).go()) == [
        *(("train", 2, 5), ("train", 4, 10), ("train", 4, 12), ("eval", 4, 12)),
    ]


def test_counters_and_rates() -> None:
    run = Run()
    rows = run.go()
    assert [row["samples_seen"] for row in rows if row["kind"] == "eval"] == [20, 40, 60, 80]
    assert [row["record_bytes"] for row in rows if row["kind"] == "eval"] == [600, 1200, 1800, 2400]
    assert [row["scan_group"] for row in rows if row["kind"] == "eval"] == [2, 3, 4, 5]
    assert rows[-1]["bytes_read"] == 12 * MIB
    for row in rows:
        assert row["learning_rate"] == learning_rate(run.config, row["step"] - 1, 3)
    assert [(u.epoch, u.ends_epoch, u.num_images) for u in run.policy.updates] == [
        (epoch, index == 2, (8, 8, 4)[index]) for epoch in range(4) for index in range(3)
    ]
    assert run.policy.updates[4].wait_s == 5 * 2 + 0.5
    epoch_losses = [u.loss * u.num_images for u in run.policy.updates[:3]]
    assert sum(epoch_losses) / 20 == pytest.approx(rows[1]["train_loss"])


def test_repeats_are_trained_on_but_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images of every batch repeat others of the epoch; `samples_seen` counts only fresh images."""
    batch_of = FakeLoader.batch
    monkeypatch.setattr(FakeLoader, "batch", lambda *args: replace(batch_of(*args), num_repeats=2))
    rows = Run().go()
    assert [row["samples_seen"] for row in rows if row["kind"] == "eval"] == [14, 28, 42, 56]
    assert [row["samples_trained"] for row in rows if row["kind"] == "eval"] == [20, 40, 60, 80]


def test_what_is_measured_is_in_every_row() -> None:
    run = Run()
    run.measure = lambda row: {"updates_and_images": (row["step"], row["samples_seen"])}
    assert [row["updates_and_images"] for row in run.go()] == [
        (row["step"], row["samples_seen"]) for row in run.rows
    ]


def test_counters_that_a_checkpoint_does_not_know_begin_at_zero() -> None:
    state = Progress(step=7, samples_seen=9, samples_trained=12).state_dict()
    del state["samples_trained"]
    assert Progress.from_state(state) == Progress(step=7, samples_seen=9)


def test_every_second_goes_to_its_clock() -> None:
    run = Run()
    last = run.go()[-1]
    assert last["wait_s"] == pytest.approx(12 * 2 + 4 * 0.5), "batches, and pauses before evaluation"
    assert last["eval_s"] == pytest.approx(4 * 5)
    assert last["other_s"] == pytest.approx(9 * 0.25 + 3 * 1), "rows and checkpoints before this row"
    assert last["train_s"] == 0, "the fake time stands still while torch works"
    assert last["wall_s"] == pytest.approx(run.time.now_s - 1.25)
    assert run.clocks.current is None


def test_rates_are_of_the_stretch_since_the_last_train_row() -> None:
    first, second = (row for row in Run().go()[:3] if row["kind"] == "train")
    assert first["images_per_s"] == pytest.approx(16 / 4)
    assert first["storage_mib_per_s"] == pytest.approx(2 / 4)
    assert first["wait_share"] == 1
    # 2 batches and a pause are waiting, 2 rows and 1 checkpoint `other`; the evaluation counts in neither.
    assert second["images_per_s"] == pytest.approx((4 + 8) / 4.5)
    assert second["storage_mib_per_s"] == pytest.approx(2 / (4.5 + 2 * 0.25 + 1))


def test_no_time_passed_is_rate_zero() -> None:
    keys = ("train_s", "wait_s", "eval_s", "wall_s", "samples_seen", "bytes_read")
    assert set(interval_rates({}, dict.fromkeys(keys, 0.0)).values()) == {0.0}


def test_the_loader_stands_still_while_evaluating() -> None:
    run = Run(epochs=2)
    run.go()
    assert run.loader.events == ["batches 0 0 2", "pause", "resume", "pause", "resume"]


def test_train_loss_is_weighted_by_images() -> None:
    run = Run(epochs=1, log_every_steps=1)
    *steps, evaluation = run.go()
    wanted = sum(row["train_loss"] * n for row, n in zip(steps, (8, 8, 4), strict=True)) / 20
    assert evaluation["train_loss"] == pytest.approx(wanted)


def test_it_learns() -> None:
    losses = [row["val_loss"] for row in Run(epochs=10).go() if row["kind"] == "eval"]
    assert losses[-1] < losses[0] / 2


def test_checkpoints_follow_evaluations_and_updates() -> None:
    run = Run(epochs=2, checkpoint_every_steps=2)
    run.go()
    assert [saved["progress"]["step"] for saved in run.saved] == [2, 3, 4, 6]
    assert [saved["num_rows"] for saved in run.saved] == [1, 2, 3, 5]
    assert [(s["progress"]["epoch"], s["progress"]["batch"]) for s in run.saved] == [
        (0, 2),
        (1, 0),
        (1, 1),
        (2, 0),
    ]


def deterministic(rows: list[Row]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in DETERMINISTIC + SCORES if key in row} for row in rows]


@pytest.mark.parametrize("which", range(12))
def test_resumed_at_any_checkpoint_the_rows_are_the_same(which: int) -> None:
    whole = Run(checkpoint_every_steps=1)
    rows = whole.go()
    saved = whole.saved[which]
    resumed = Run(saved, checkpoint_every_steps=1)
    resumed.rows = rows[: saved["num_rows"]]
    assert deterministic(resumed.go()) == deterministic(rows)
    assert resumed.rows[-1]["bytes_read"] == 12 * MIB
    times = ("train_s", "probe_s", "wait_s", "eval_s", "other_s", "wall_s")
    # Fake seconds are deterministic too, but a checkpoint reads the clocks before it ends.
    assert [resumed.rows[-1][key] for key in times] == pytest.approx([rows[-1][key] for key in times])


def test_the_same_seed_gives_the_same_rows() -> None:
    assert Run().go() == Run().go()


def test_stopping_saves_first() -> None:
    run = Run()
    run.stop_at = 5
    rows = run.go()
    assert [saved["progress"]["step"] for saved in run.saved] == [3, 5]
    assert run.clocks.current is None
    resumed = Run(run.saved[-1])
    resumed.rows = rows
    assert deterministic(resumed.go()) == deterministic(Run().go())


def test_a_run_that_was_complete_reads_nothing() -> None:
    whole = Run()
    whole.go()
    resumed = Run(whole.saved[-1])
    assert resumed.go() == []
    assert resumed.loader.events == []


def test_a_training_loss_that_is_not_finite_names_where() -> None:
    run = Run(learning_rate=1e30, log_every_steps=1, epochs=9, schedule="constant")
    with pytest.raises(
        RunError, match=r"the training loss is (nan|inf) at step \d+, epoch 1, scan group 2: .*diverged"
    ):
        run.go()
    assert run.rows, "rows before it were given out"


def test_a_validation_loss_that_is_not_finite_names_where() -> None:
    run = Run()
    run.evaluate = lambda _: {"full": {"val_loss": float("inf")}}  # type: ignore[method-assign]
    with pytest.raises(RunError, match="the validation loss is inf at step 3, epoch 1, scan group 2"):
        run.go()
    assert run.loader.events[-1] == "resume"


def test_a_loader_that_ends_early_is_reported() -> None:
    with pytest.raises(RunError, match="the loader ended in epoch 3 of 4, after 6 of 12 updates"):
        Run(loader_epochs=2).go()


def test_closing_the_generator_closes_the_stream() -> None:
    run = Run()
    closed = []

    def batches(*_: int) -> Iterator[Batch]:
        try:
            yield from FakeLoader.batches(run.loader, 0, 0, 4)
        finally:
            closed.append(True)

    run.loader.batches = batches  # type: ignore[method-assign]
    stream = run.loop().rows()
    next(stream)
    stream.close()
    assert closed == [True]


def with_probes(**changes: Any) -> Run:
    run = Run(**changes)
    run.policy.wanted = {epoch: CosineProbe((2, 5), 8) for epoch in (0, 2, 4)}
    return run


def test_probes_come_between_epochs_on_their_own_clock_and_are_counted() -> None:
    run = with_probes(eval_every_epochs=2)
    rows = run.go()
    assert kinds(rows) == [
        *(("policy", 0, 0), ("train", 1, 2), ("train", 2, 4), ("train", 2, 6), ("eval", 2, 6)),
        *(("policy", 2, 6), ("train", 3, 8), ("train", 4, 10), ("train", 4, 12), ("eval", 4, 12)),
    ]
    assert run.policy.asked == [0, 1, 2, 3], "once before each epoch"
    assert run.policy.told == [{2: 0.9, 5: 0.9}] * 2, "after the last epoch there is nothing to decide"
    assert [row["probe_s"] for row in rows] == [7] * 5 + [14] * 5
    assert [row["probe_bytes"] for row in rows] == [1000] * 5 + [2000] * 5
    decision = rows[5]
    assert (decision["group"], decision["measure"], decision["scores"]) == (2, "cosine", {"2": 0.9, "5": 0.9})
    assert decision["bytes_saved"] == 6 * 400 - 1200
    assert rows[0]["bytes_saved"] == rows[0]["samples_seen"] == 0
    total_s = sum(rows[-1][f"{clock}_s"] for clock in NAMES)
    assert total_s == pytest.approx(rows[-1]["wall_s"])


def test_a_checkpoint_holds_what_was_decided() -> None:
    run = with_probes(eval_every_epochs=2)
    run.go()
    assert [saved["num_rows"] for saved in run.saved] == [6, 10]
    assert run.saved[0]["progress"]["probe_bytes"] == 2000


def test_counters_that_a_checkpoint_is_too_old_for_begin_at_zero() -> None:
    state = Progress(step=3, record_bytes=5, full_bytes=9, probe_bytes=7).state_dict()
    del state["full_bytes"], state["probe_bytes"]
    assert Progress.from_state(state) == Progress(step=3, record_bytes=5)


def test_an_evaluation_that_was_made_up_for_is_saved() -> None:
    """A run that stopped between its last update and the evaluation makes up for it when it resumes."""
    whole = Run()
    whole.go()
    saved = whole.saved[-1]
    saved["progress"] |= {"to_evaluate": True, "epoch_loss": {"total": 2.0, "num_images": 4}}
    resumed = Run(saved)
    (row,) = resumed.go()
    assert (row["kind"], row["step"], row["train_loss"]) == ("eval", 12, 0.5)
    assert [each["num_rows"] for each in resumed.saved] == [1]


def test_the_train_loss_of_an_evaluation_is_of_its_last_epoch() -> None:
    rows = Run(log_every_steps=1, eval_every_epochs=2).go()
    evaluation = next(row for row in rows if row["kind"] == "eval")
    losses = [row["train_loss"] for row in rows if row["kind"] == "train" and row["epoch"] == 2]
    wanted = sum(loss * n for loss, n in zip(losses, (8, 8, 4), strict=True)) / 20
    assert evaluation["train_loss"] == pytest.approx(wanted)


def test_a_limit_in_seconds_is_of_training_waiting_and_probes() -> None:
    """The first probe takes 7 s after a pause of 0.5 s, and a batch arrives after 2 s."""
    run = Run(epochs=1)
    run.policy.wanted = {0: CosineProbe((2, 5), 8)}
    read: list[float] = []

    def out_of_time(seconds: float) -> bool:
        read.append(seconds)
        return False

    loop = run.loop()
    loop.stopping = Stopping(out_of_time=out_of_time)
    list(loop.rows())
    assert read == [9.5, 11.5, 13.5]


class InParts(FakeLoader):
    """Every update has two parts of the same images; each takes 2 s to arrive."""

    def batches(self, first_epoch: int, first_batch: int, num_epochs: int) -> Iterator[Batch]:
        for batch in super().batches(first_epoch, first_batch, num_epochs):
            yield replace(batch, num_parts=2)
            self.time.now_s += 2
            yield replace(batch, part=1, num_parts=2)


def test_waiting_for_a_later_part_is_waiting_and_no_place_to_stop() -> None:
    run = Run(epochs=1)
    run.loader = InParts(run.time)
    stops: list[int] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        stops.append(run.progress.samples_trained)
        yield

    loop = run.loop()
    loop.stopping = Stopping(waiting=waiting)
    last = list(loop.rows())[-1]
    assert (last["train_s"], last["wait_s"]) == (0, 3 * 4 + 0.5)
    assert stops == [0, 16, 32, 40, 40], "before updates, the evaluation and the end"


def test_a_checkpoint_after_waiting_in_vain_is_no_waiting() -> None:
    """`Run.checkpoint` requires the clock `other`."""
    run = Run()

    @contextmanager
    def waiting() -> Iterator[None]:
        if run.progress.step == 2:
            raise StopWaiting
        yield

    loop = run.loop()
    loop.stopping = Stopping(waiting=waiting)
    list(loop.rows())
    assert [saved["progress"]["step"] for saved in run.saved] == [2]
