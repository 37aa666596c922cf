"""A progress bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counting_bar(name: str, *, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (number done, total number) that shows a bar called `name` from its first call on."""
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), disable=not shown)

    def tell(num_done: int, num_in_all: int) -> None:
        if not bar.task_ids:
            bar.start()
            bar.add_task(name, total=num_in_all)
        bar.update(bar.task_ids[0], completed=num_done)

    try:
        yield tell
    finally:
        bar.stop()
