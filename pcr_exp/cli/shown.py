"""What a study shows at its end: its answer in the terminal, all its files where runs are tracked."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pcr_exp.cli.terminal import print_figures, print_markdown
from pcr_exp.config.commands import TrackingConfig
from pcr_exp.runs.tracking import open_tracker

_MOST_BYTES_SHOWN = 200_000
"""Of a CSV file that is shown as a table: larger ones, a row per image, are kept and not shown."""


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
