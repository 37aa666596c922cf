"""The training loop: a generator of plain rows. It knows no configuration framework, no files, no tracker."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, Protocol

from pcr_exp.errors import RunError
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import ScanPolicy, Update
from pcr_exp.system.process import StopWaiting
from pcr_exp.training.clocks import ClockName, Clocks
from pcr_exp.training.probes import RunProbe, decisions
from pcr_exp.training.report import MeanLoss, Measure, Progress, Reporter, Row, no_measure
from pcr_exp.training.trainer import Trainer, learning_rate


class Loader(Protocol):
    """What the loop asks of a loader; `pcr_exp.loading.loader.RecordLoader` is one."""

    @property
    def num_batches(self) -> int:
        """Updates in an epoch."""

    def batches(self, first_epoch: int, first_batch: int, num_epochs: int) -> Iterator[Batch]:
        """One stream from update `first_batch` to the end of epoch `num_epochs` - 1."""

    def pause(self) -> None:
        """Return when nothing is being read any more."""

    def resume(self) -> None:
        """Read on."""


def fit(
    trainer: Trainer,
    loader: Loader,
    policy: ScanPolicy,
    progress: Progress,
    clocks: Clocks,
    *,
    evaluate: Callable[[int], Mapping[str, Mapping[str, Any]]],
    probe: RunProbe,
    bytes_read: Callable[[], int],
    checkpoint: Callable[[], None],
    should_stop: Callable[[], bool] = lambda: False,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    measure: Measure = no_measure,
    out_of_time: Callable[[float], bool] = lambda _: False,
) -> Generator[Row, None, None]:
    """Train from where `progress` stands to the end of the last epoch, and yield rows.

    `train` rows come every `log_every_steps` updates and after the very last; `eval` rows every
    `eval_every_epochs` epochs and after the last; `policy` rows when the scan policy has decided. The epoch
    of `train` and `eval` rows counts from 1: it is the one that the last update belongs to, which in an
    `eval` row has just been completed. Whoever takes a row, and `checkpoint`, work on the `other` clock.

    Args:
        trainer: The model and its optimizer, in the state that `progress` tells of.
        loader: Gives batches; paused, on `wait`, before `evaluate`, so that no byte is read unclocked.
        policy: Told of every update; asked after each epoch what it wants to have probed.
        progress: Moved on in place.
        clocks: Stand still; run from here on, and stand still again at the end.
        evaluate: Given the scan group of the last update, returns `val_loss`, the task's metrics and
            `num_val` for each of `training.eval_groups`; runs on the `eval` clock.
        probe: Finds out what the policy wants to know, on the `probe` clock, with the loader paused.
        bytes_read: What storage has delivered since the run began.
        checkpoint: Saves everything, once all rows so far have been taken: after an `eval` row, every
            `checkpoint_every_steps` updates, and before stopping early.
        should_stop: Asked after each update.
        waiting: Entered for an update's first batch, and until the loader has paused for an evaluation;
            raises StopWaiting where `should_stop` would be true.
        measure: Makes more columns of a row from the counters and clocks in it.
        out_of_time: Asked after each update with the seconds of training, waiting and probes so far; where it
            says yes, this is the last update.

    Raises:
        RunError: a loss is not finite, or the loader ended early.
    """
    config = trainer.config
    reporter = Reporter(progress, clocks, bytes_read, measure)
    last_step = config.epochs * loader.num_batches

    def decided() -> Iterator[Row]:
        return decisions(
            policy,
            probe,
            progress,
            reporter,
            epochs=config.epochs,
            probing=lambda: _paused(loader, clocks, "probe"),
            bytes_read=bytes_read,
        )

    def stopped() -> None:
        clocks.switch("other")
        checkpoint()
        clocks.pause()

    def evaluated() -> Iterator[Row]:
        with _paused(loader, clocks, "eval", waiting):
            by_group = evaluate(progress.scan_group)
        train_loss, progress.epoch_loss = progress.epoch_loss.mean, MeanLoss()
        progress.to_evaluate = False
        for eval_group, scores in by_group.items():
            _require_finite("validation loss", scores["val_loss"], progress, progress.epoch)
            yield reporter.eval_row(progress.epoch, train_loss, eval_group, scores)

    clocks.switch("other")
    trainer.begin_epoch(progress.epoch)
    if progress.to_evaluate:  # the run was asked to stop before it could
        try:
            yield from evaluated()
        except StopWaiting:
            stopped()
            return
    yield from decided()
    clocks.switch("wait")
    with closing(_stream(loader, progress, config.epochs)) as stream:
        num_images = num_fresh = 0
        while True:
            try:
                # An update that several batches make has changed the model's statistics after the first.
                with nullcontext() if num_images else waiting():
                    batch = next(stream, None)
            except StopWaiting:
                stopped()
                return
            if batch is None:
                break
            clocks.switch("train")
            loss = _train_on(batch, trainer, progress, steps_per_epoch=loader.num_batches)
            num_images += len(batch.labels)
            num_fresh += batch.num_fresh
            if not batch.completes_update:
                clocks.switch("wait")
                continue
            clocks.switch("other")
            _complete(batch, loss, num_images, progress)
            trainer.begin_epoch(progress.epoch)
            policy.observe(_update(batch, loss, num_images, num_fresh, clocks))
            num_images = num_fresh = 0
            epoch = batch.epoch + 1
            over = out_of_time(_counted_s(clocks))
            if _due(config.log_every_steps, progress.step) or progress.step == last_step or over:
                yield reporter.train_row(epoch)
            due = progress.batch == 0 and (_due(config.eval_every_epochs, epoch) or epoch == config.epochs)
            if due:
                progress.to_evaluate = True
                try:
                    yield from evaluated()
                except StopWaiting:
                    stopped()
                    return
            elif progress.batch == 0:
                progress.epoch_loss = MeanLoss()
            yield from decided()
            stop = should_stop()
            if due or stop or over or _due(config.checkpoint_every_steps, progress.step):
                checkpoint()
            if stop or over:
                clocks.pause()
                return
            clocks.switch("wait")
    clocks.pause()
    if progress.epoch < config.epochs:
        raise RunError(
            f"the loader ended in epoch {progress.epoch + 1} of {config.epochs}, after {progress.step} of"
            f" {last_step} updates. This is a defect of the loader: please report it."
        )


def _train_on(batch: Batch, trainer: Trainer, progress: Progress, *, steps_per_epoch: int) -> float:
    rate = learning_rate(trainer.config, progress.step, steps_per_epoch)
    loss = trainer.update(
        batch.images,
        batch.labels,
        step=progress.step,
        learning_rate=rate,
        slot=batch.slot,
        part=batch.part,
        num_parts=batch.num_parts,
    )
    progress.samples_seen += batch.num_fresh
    progress.samples_trained += len(batch.labels)
    progress.record_bytes += batch.record_bytes
    progress.full_bytes += batch.full_bytes
    progress.num_replaced += batch.num_replaced
    progress.scan_group = batch.group
    progress.learning_rate = rate
    return loss


def _complete(batch: Batch, loss: float, num_images: int, progress: Progress) -> None:
    """Count an update, of which `batch` was the last part and `num_images` all that this process gave."""
    ends_epoch = batch.index + 1 == batch.num_batches
    progress.step += 1
    progress.epoch = batch.epoch + ends_epoch
    progress.batch = 0 if ends_epoch else batch.index + 1
    _require_finite("training loss", loss, progress, batch.epoch + 1)
    progress.epoch_loss.add(loss, num_images)
    progress.interval_loss.add(loss, num_images)


def _counted_s(clocks: Clocks) -> float:
    seconds = clocks.read()
    return seconds["train_s"] + seconds["wait_s"] + seconds["probe_s"]


def _update(batch: Batch, loss: float, num_images: int, num_fresh: int, clocks: Clocks) -> Update:
    seconds = clocks.read()
    return Update(
        epoch=batch.epoch,
        ends_epoch=batch.index + 1 == batch.num_batches,
        num_images=num_images,
        num_fresh=num_fresh,
        group=batch.group,
        loss=loss,
        train_s=seconds["train_s"],
        wait_s=seconds["wait_s"],
    )


def _stream(loader: Loader, progress: Progress, epochs: int) -> Generator[Batch, None, None]:
    # A run that was killed between its last checkpoint and its end has nothing left to read.
    if progress.epoch < epochs:
        yield from loader.batches(progress.epoch, progress.batch, epochs)


@contextmanager
def _paused(
    loader: Loader,
    clocks: Clocks,
    clock: ClockName,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Iterator[None]:
    clocks.switch("wait")
    with waiting():  # reads in flight may take long
        loader.pause()
    clocks.switch(clock)
    try:
        yield
    finally:
        clocks.switch("other")
        loader.resume()


def _due(every: int | None, count: int) -> bool:
    return every is not None and count % every == 0


def _require_finite(what: str, loss: float, progress: Progress, epoch: int) -> None:
    if not math.isfinite(loss):
        raise RunError(
            f"the {what} is {loss} at step {progress.step}, epoch {epoch}, scan group {progress.scan_group}: "
            "training diverged. Rows up to here are kept; lower training.learning_rate or lengthen "
            "training.warmup_epochs."
        )
