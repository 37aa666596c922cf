"""Pages of runs: tables in Markdown, and the files that a page writes into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.caption import of_runs
from pcr_exp.analysis.distinguishing import titles_apart
from pcr_exp.analysis.figure import save_figure
from pcr_exp.analysis.frame import per_setting
from pcr_exp.analysis.primary_metric import as_written
from pcr_exp.analysis.tables import Cell, Footnotes, section


class Output:
    """Tables and figures that pages write into a folder, from one frame of runs (`frame.run_frame`)."""

    def __init__(self, frame: pd.DataFrame, folder: Path) -> None:
        """Start without any file."""
        self.frame, self.folder = frame, folder
        self.tables: list[Path] = []
        self.figures: list[Path] = []
        """PDF, PNG and CSV of each figure."""

    def table(self, name: str, rows: pd.DataFrame, text: str | None = None) -> None:
        """Write rows as `<name>.csv` and, if given, the Markdown text as `<name>.md`."""
        path = self.folder / f"{name}.csv"
        as_written(rows).to_csv(path, index=False)
        self.tables.append(path)
        if text is not None:
            self.text(name, text)

    def text(self, name: str, text: str) -> None:
        """Write a Markdown table as `<name>.md`; its rows are in a CSV file already, such as a figure's."""
        path = self.folder / f"{name}.md"
        path.write_text(text)
        self.tables.append(path)

    def figure(
        self,
        name: str,
        shows: str,
        rows: pd.DataFrame,
        draw: Callable[[pd.DataFrame], Figure],
        drawn: pd.DataFrame | None = None,
    ) -> None:
        """Save the figure that `draw` makes of `rows`, as `save_figure` does.

        The caption covers `drawn`, runs of `run_frame`; by default all, or those in a column `run_id` of
        `rows`.
        """
        caption = of_runs(self.frame, shows, rows) if drawn is None else of_runs(drawn, shows)
        self.figures += save_figure(draw, rows, self.folder, name, caption)


Page = Callable[[Output], None]
"""Writes the tables and figures that there is data for; nothing if there is none."""
Section = tuple[str, str, pd.DataFrame, dict[str, Cell], Footnotes]


def sections(
    table: pd.DataFrame,
    keys: Sequence[str],
    words: Mapping[str, str] | None,
    facts: Callable[[Mapping[str, Any], pd.DataFrame], str],
    columns: Callable[[pd.DataFrame, Footnotes], dict[str, Cell]],
    shown: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows,
) -> Iterator[Section]:
    """Yield one titled table per group of comparable runs, for `tables.section`.

    Args:
        table: Rows with `keys`, among them dataset, label, model and `setting`.
        keys: Columns whose values the runs of a group share.
        words: Description of each setting (`distinguishing.describe_settings`), to make equal titles unique.
        facts: Returns the text above a table, from the values of its keys and its rows.
        columns: Returns the cells of a table by header, from its rows and its footnotes.
        shown: Selects and orders the rows that are printed.

    Yields:
        Title, facts, rows, columns and footnotes. The footnotes are complete once all cells are formatted.
    """
    found = list(per_setting(table, keys))
    titles = titles_apart([(title, group) for title, group, _ in found], words)
    for title, (_, group, rows) in zip(titles, found, strict=True):
        notes = Footnotes()
        yield title, facts(group, rows), shown(rows), columns(rows, notes), notes


def joined(found: Iterable[Section]) -> str:
    """Return all sections of a page in Markdown."""
    return "\n".join(section(*each) for each in found)
