"""What a study shows at its end: its tables in the terminal, all its files where runs are tracked."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from pcr_exp.config.runners import TrackingConfig
from pcr_exp.runs.tracking import open_tracker

_FILE_COLUMNS = 160
"""Width of the tables in a file or a pipe: narrower, loaders' names and numbers would be cut."""
_MOST_BYTES_SHOWN = 200_000
"""Of a CSV file that is shown as a table: larger ones, a row per image, are kept and not shown."""


def show(files: Iterable[Path]) -> None:
    """Print the tables, and where the figures are."""
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    for path in files:
        if path.suffix == ".md":
            console.print(Markdown(path.read_text()))
        elif path.suffix == ".png":  # PDF and CSV lie beside it
            console.print(f"figure: {path}", soft_wrap=True, highlight=False)


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
