"""Progress on stderr: epoch, images/s, MiB/s and the share of time spent waiting for data."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pcr_exp.training.report import interval_rates
from pcr_exp.training.task import TOP1, PrimaryMetric


class TrainingBar:
    """A progress bar over all updates of a run, updated from its rows."""

    def __init__(
        self, bar: Progress, *, epochs: int, total_steps: int, step: int, headline: PrimaryMetric = TOP1
    ) -> None:
        self._bar = bar
        self._epochs = epochs
        self._headline = headline
        self._last: Mapping[str, Any] | None = None
        self._task = bar.add_task(
            "training", total=total_steps, completed=step, epoch=f"epoch -/{epochs}", rates="", score=""
        )

    def update(self, row: Mapping[str, Any]) -> None:
        """Show a row."""
        fields: dict[str, Any] = {"epoch": f"epoch {row['epoch']}/{self._epochs}"}
        if row["kind"] == "train":
            fields["rates"] = _rates(row)
        elif row["kind"] == "eval" and row.get("eval_group", "full") == "full":
            fields["score"] = f"{self._headline.words} {row[f'val_{self._headline.name}']:.3f}"
        self._bar.update(self._task, completed=row["step"], **fields)
        self._last = row

    def show_totals(self) -> None:
        """Show the rates of the whole run in place of those of its last few updates."""
        if self._last is not None:
            totals = interval_rates({}, self._last)
            self._bar.update(self._task, rates=f"in all {_rates(totals)}")


def _rates(rates: Mapping[str, float]) -> str:
    mib_per_s = rates["storage_mib_per_s"]
    read = f"{mib_per_s:.1f}" if mib_per_s >= 1 else f"{mib_per_s:.2g}"  # so that 0.05 is not shown as 0.0
    return f"{rates['images_per_s']:.0f} images/s, {read} MiB/s, {rates['wait_share']:.0%} waiting"


@contextmanager
def training_bar(
    *, epochs: int, total_steps: int, step: int, shown: bool, headline: PrimaryMetric = TOP1
) -> Iterator[TrainingBar]:
    """Show a bar on stderr while the block runs, then the run's totals (off a terminal only the totals)."""
    columns = ("{task.fields[epoch]}", "{task.fields[rates]}", "{task.fields[score]}")
    texts = [TextColumn(column) for column in columns]
    console = Console(stderr=True)
    bar = Progress(
        texts[0], BarColumn(), *texts[1:], TimeRemainingColumn(), console=console, disable=not shown
    )
    with bar, _logs_above_bar(live=shown and console.is_terminal):
        training = TrainingBar(bar, epochs=epochs, total_steps=total_steps, step=step, headline=headline)
        try:
            yield training
        finally:
            training.show_totals()


@contextmanager
def _logs_above_bar(*, live: bool) -> Iterator[None]:
    # rich prints sys.stderr output above the bar, but handlers created earlier hold the real stream.
    moved: list[tuple[logging.StreamHandler[Any], Any]] = []
    if live:
        for handler in logging.getLogger().handlers:
            if type(handler) is logging.StreamHandler and handler.stream in (sys.__stderr__, sys.__stdout__):
                moved.append((handler, handler.setStream(sys.stderr)))
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)
