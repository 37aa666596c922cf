"""Print answers and figures' paths to a terminal or a pipe, and log studies to a tracker."""

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
"""Width of a pipe in columns: a table takes as many as it needs."""


class WithoutOwnErrors(logging.Filter):
    """Drops the log's copy of a `PcrExpError`: only its message is printed; a run's own log keeps it."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, PcrExpError) or os.environ.get("HYDRA_FULL_ERROR") == "1"


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Print a table at the width of the terminal, or as wide as its cells in a pipe."""
    open_console(sys.stderr if stderr else sys.stdout).print(table)


def print_markdown(text: str) -> None:
    """Print a study's page without its images: rendered on a terminal, unchanged in a pipe."""
    text = _IMAGE.sub("", text)
    if sys.stdout.isatty():
        open_console(sys.stdout).print(Markdown(text))
    else:
        print(text.rstrip())


def print_figures(files: Iterable[Path]) -> None:
    """Print the path of each figure's PNG file; its PDF and CSV files lie in the same folder."""
    for path in files:
        if path.suffix == ".png":
            print(f"figure: {path}")


def open_console(stream: TextIO) -> Console:
    """Open a console that prints `:words:` unchanged and, in a pipe, is as wide as its table."""
    return Console(file=stream, emoji=False, width=None if stream.isatty() else _UNBOUNDED)


_MOST_BYTES_SHOWN = 200_000
"""Largest CSV file shown as a table. Larger ones, with a row per image, are stored but not shown."""


def show(files: Iterable[Path], answer: str = "") -> None:
    """Print `answer`, or else the Markdown pages among the files, and the paths of figures."""
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
    """Log a study to a tracker run of its own, whose files lie below `out`.

    Args:
        tracking: Settings of the tracker.
        name: The study's name in the tracker.
        out: The study's folder.
        settings: The study's whole configuration.
        files: Figures and tables; all of them are also stored as one artifact.
        rows: Rows to plot, each with its `kind`.
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
