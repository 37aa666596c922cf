"""What a study shows at its end: its tables in the terminal, its figures where runs are tracked."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from pcr_exp.config.runners import TrackingConfig
from pcr_exp.runs.tracking import open_tracker

_FILE_COLUMNS = 160
"""Width of the tables in a file or a pipe: narrower, loaders' names and numbers would be cut."""


def show(files: Iterable[Path]) -> None:
    """Print the tables, and where the figures are."""
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    for path in files:
        if path.suffix == ".md":
            console.print(Markdown(path.read_text()))
        elif path.suffix == ".png":  # PDF and CSV lie beside it
            console.print(f"figure: {path}", soft_wrap=True, highlight=False)


def track_figures(
    tracking: TrackingConfig, name: str, out: Path, settings: dict[str, Any], files: Iterable[Path]
) -> None:
    """Give the figures among `files` to a tracker of their own, which keeps what it keeps below `out`."""
    tracker = open_tracker(tracking, name, out, settings)
    try:
        for path in files:
            if path.suffix == ".png":
                tracker.figure(path.stem, path)
    finally:
        tracker.finish()
