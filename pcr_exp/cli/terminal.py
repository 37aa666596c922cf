"""Answers on a terminal or in a pipe, where each figure lies, and what is shown by a tracker besides."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from pcr_exp.config.commands import TrackingConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.runs.tracking import open_tracker

_IMAGE = re.compile(r"^!\[.*\]\(.*\)\n*", re.MULTILINE)
_UNBOUNDED = 100_000
"""Columns of a pipe: a table takes as many as it needs."""


class ToldAtTheEnd(logging.Filter):
    """Drops the log's copy of an error for people: its message alone is told, and a run's own log has all."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, PcrExpError) or os.environ.get("HYDRA_FULL_ERROR") == "1"


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Print a table as wide as its cells; on a terminal as wide as that is."""
    open_console(sys.stderr if stderr else sys.stdout).print(table)


def print_markdown(text: str) -> None:
    """Print a page of a study without its images: rendered on a terminal, as it is in a pipe."""
    text = _IMAGE.sub("", text)
    if sys.stdout.isatty():
        open_console(sys.stdout).print(Markdown(text))
    else:
        print(text.rstrip())


def print_figures(files: Iterable[Path]) -> None:
    """Say where figures lie: the PNG of each, beside which PDF and CSV lie."""
    for path in files:
        if path.suffix == ".png":
            print(f"figure: {path}")


def open_console(stream: TextIO) -> Console:
    """A console that leaves `:words:` between colons as they are, and is as wide as its table in a pipe."""
    return Console(file=stream, emoji=False, width=None if stream.isatty() else _UNBOUNDED)


_MOST_BYTES_SHOWN = 200_000
"""The largest CSV file that is shown as a table. Larger ones, a row per image, are kept and not shown."""


def show(files: Iterable[Path], answer: str = "") -> None:
    """Print the answer, `answer` or else the pages among the files, and where the figures are."""
    files = list(files)
    for text in [answer] if answer else [path.read_text() for path in files if path.suffix == ".md"]:
        print_markdown(text)
    print_figures(files)


def track_files(
    tracking: TrackingConfig,
    name: str,
    out: Path,
    settings: dict[str, Any],
    files: Iterable[Path],
    rows: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Show a study by a tracker of its own, which keeps what it keeps below `out`.

    Args:
        tracking: Which tracker.
        name: The study's name there.
        out: The study's folder.
        settings: Its whole configuration.
        files: Figures and tables; all of them are kept as one artifact besides.
        rows: Lines to draw, each with its `kind`.
    """
    tracker = open_tracker(tracking, name, out, settings)
    files = list(files)
    try:
        for row in rows:
            tracker.log(row)
        for path in files:
            if path.suffix == ".png":
                tracker.figure(path.stem, path)
            elif path.suffix == ".csv" and path.stat().st_size <= _MOST_BYTES_SHOWN:
                tracker.table(path.stem, path)
        tracker.artifact(name, files)
    finally:
        tracker.finish()
