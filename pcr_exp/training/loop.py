"""The training loop: a generator of plain rows, independent of configuration framework, files and tracker."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from pcr_exp.errors import RunError
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import ScanPolicy, Update
from pcr_exp.system.process import StopWaiting
from pcr_exp.training.clocks import ClockName, Clocks
from pcr_exp.training.columns import bytes_column, images_column
from pcr_exp.training.probes import RunProbe, decisions
from pcr_exp.training.report import MeanLoss, Progress, Reporter, Row
from pcr_exp.training.trainer import Trainer, learning_rate


class Loader(Protocol):
    """Interface of a loader for the loop; `pcr_exp.loading.loader.RecordLoader` implements it."""

    @property
    def num_batches(self) -> int:
        """Updates in an epoch."""

    def batches(self, first_epoch: int, first_batch: int, num_epochs: int) -> Iterator[Batch]:
        """Return a stream from update `first_batch` of `first_epoch` to the end of epoch `num_epochs` - 1."""

    def pause(self) -> None:
        """Stop reading, and return when no read is in flight."""

    def resume(self) -> None:
        """Continue reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Conditions that end training before its last epoch, always between updates."""

    should_stop: Callable[[], bool] = lambda: False
    """Called after each update."""
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    """Entered while waiting for an update's first batch, or for the loader to pause before an evaluation.
    Raises StopWaiting where `should_stop` would be true."""
    out_of_time: Callable[[float], bool] = lambda _: False
    """Called after each update with the seconds of training, waiting and probes so far. If true, that update
    was the last."""


@dataclass(slots=True, kw_only=True)
class Loop:
    """Training from the reporter's progress to the end of the last epoch."""

    trainer: Trainer
    """The model and its optimizer, in the state that matches the progress."""
    loader: Loader
    """Paused on the `wait` clock before `evaluate`, so that all reading is clocked."""
    policy: ScanPolicy
    """Observes every update; after each epoch it may request a probe."""
    reporter: Reporter
    """Its progress is updated in place; its clocks are stopped before and after."""
    evaluate: Callable[[int], Mapping[str, Mapping[str, Any]]]
    """Takes the scan group of the last update and returns `val_loss`, the task's metrics and `num_val` for
    each of `training.eval_groups`. Runs on the `eval` clock."""
    probe: RunProbe
    """Runs a probe that the policy requests, on the `probe` clock, with the loader paused."""
    checkpoint: Callable[[], None]
    """Saves everything, once all rows so far have been consumed: after an `eval` row, every
    `checkpoint_every_steps` updates, and before stopping early."""
    stopping: Stopping = field(default_factory=Stopping)

    def rows(self) -> Generator[Row, None, None]:
        """Train, and yield rows.

        `train` rows come every `log_every_steps` updates and after the very last, `eval` rows every
        `eval_every_epochs` epochs and after the last, and `policy` rows when the scan policy has decided. The
        epoch of `train` and `eval` rows counts from 1. It is the last update's epoch, which an `eval` row
        reports as completed. `checkpoint` and the consumer of a row run on the `other` clock.

        Raises:
            RunError: a loss is not finite, or the loader ended early.
        """
        progress, clocks = self.reporter.progress, self.reporter.clocks
        clocks.switch("other")
        self.trainer.begin_epoch(progress.epoch)
        with closing(_stream(self.loader, progress, self.trainer.config.epochs)) as stream:
            try:
                evaluates = progress.to_evaluate  # the run was stopped before it could evaluate
                if evaluates:
                    yield from self._evaluated()
                yield from self._decided()
                if evaluates:
                    self.checkpoint()
                yield from self._updates(stream)
            except StopWaiting:
                clocks.switch("other")
                self.checkpoint()
            clocks.pause()

    def _updates(self, stream: Iterator[Batch]) -> Iterator[Row]:
        config, progress, clocks = self.trainer.config, self.reporter.progress, self.reporter.clocks
        last_step = config.epochs * self.loader.num_batches
        clocks.switch("wait")
        while (update := self._next_update(stream)) is not None:
            self.policy.observe(update)
            epoch = update.epoch + 1
            over = self.stopping.out_of_time(_counted_s(clocks))
            if _due(config.log_every_steps, progress.step) or progress.step == last_step or over:
                yield self.reporter.train_row(epoch)
            due = update.ends_epoch and (_due(config.eval_every_epochs, epoch) or epoch == config.epochs)
            if due:
                progress.to_evaluate = True
                yield from self._evaluated()
            elif update.ends_epoch:
                progress.epoch_loss = MeanLoss()
            yield from self._decided()
            stop = self.stopping.should_stop()
            if due or stop or over or _due(config.checkpoint_every_steps, progress.step):
                self.checkpoint()
            if stop or over:
                return
            clocks.switch("wait")
        if progress.epoch < config.epochs:
            raise RunError(
                f"the loader ended in epoch {progress.epoch + 1} of {config.epochs}, after {progress.step} of"
                f" {last_step} updates. This is a defect of the loader: please report it."
            )

    def _next_update(self, stream: Iterator[Batch]) -> Update | None:
        """Train on the batches of an update; return None if there are no more."""
        progress, clocks = self.reporter.progress, self.reporter.clocks
        num_images = num_fresh = 0
        while True:
            # Stop only before an update's first batch, which already changes the model's statistics.
            with nullcontext() if num_images else self.stopping.waiting():
                batch = next(stream, None)
            if batch is None:
                return None
            clocks.switch("train")
            loss = _train_on(batch, self.trainer, progress, steps_per_epoch=self.loader.num_batches)
            num_images += len(batch.labels)
            num_fresh += batch.num_fresh
            if batch.completes_update:
                break
            clocks.switch("wait")
        clocks.switch("other")
        _complete(batch, loss, num_images, progress)
        self.trainer.begin_epoch(progress.epoch)
        return _update(batch, loss, num_images, num_fresh, clocks)

    def _evaluated(self) -> Iterator[Row]:
        progress = self.reporter.progress
        with _paused(self.loader, self.reporter.clocks, "eval", self.stopping.waiting):
            by_group = self.evaluate(progress.scan_group)
        train_loss, progress.epoch_loss = progress.epoch_loss.mean, MeanLoss()
        progress.to_evaluate = False
        for eval_group, scores in by_group.items():
            _require_finite("validation loss", scores["val_loss"], progress, progress.epoch)
            yield self.reporter.eval_row(progress.epoch, train_loss, eval_group, scores)

    def _decided(self) -> Iterator[Row]:
        return decisions(
            self.policy,
            self.probe,
            self.reporter,
            epochs=self.trainer.config.epochs,
            probing=lambda: _paused(self.loader, self.reporter.clocks, "probe"),
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
    for name, part in batch.sources.items():
        progress.by_source[images_column(name)] += part.num_images
        progress.by_source[bytes_column(name)] += part.record_bytes
    progress.scan_group = batch.group
    progress.learning_rate = rate
    return loss


def _complete(batch: Batch, loss: float, num_images: int, progress: Progress) -> None:
    """Count an update: `batch` was its last part, `num_images` are all of this process's images in it."""
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
    # A run killed between its last checkpoint and its end has nothing left to read.
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
