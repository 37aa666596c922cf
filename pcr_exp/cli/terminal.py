"""Answers on a terminal or in a pipe: tables that nothing squeezes, and where each figure lies."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from pcr_exp.errors import PcrExpError

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
