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
    """The files that pages write into a folder, from one frame of runs (`frame.run_frame`)."""

    def __init__(self, frame: pd.DataFrame, folder: Path) -> None:
        """Nothing is written yet."""
        self.frame, self.folder = frame, folder
        self.tables: list[Path] = []
        self.figures: list[Path] = []
        """PDF, PNG and CSV of each."""

    def table(self, name: str, rows: pd.DataFrame, text: str | None = None) -> None:
        """Write rows as `<name>.csv`, and the text for people, if there is one, as `<name>.md`."""
        path = self.folder / f"{name}.csv"
        as_written(rows).to_csv(path, index=False)
        self.tables.append(path)
        if text is not None:
            self.text(name, text)

    def text(self, name: str, text: str) -> None:
        """Write a table for people, whose rows are a figure's."""
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
        """Save the figure that `draw` makes of rows, as `save_figure` does.

        Its caption is of all runs, or of those that are in `drawn` (the rows, if it is not given), where that
        has `run_id`.
        """
        caption = of_runs(self.frame, shows, rows if drawn is None else drawn)
        self.figures += save_figure(draw, rows, self.folder, name, caption)


Page = Callable[[Output], None]
"""Writes what there is data for; nothing, if there is none."""
Section = tuple[str, str, pd.DataFrame, dict[str, Cell], Footnotes]


def sections(
    table: pd.DataFrame,
    keys: Sequence[str],
    words: Mapping[str, str] | None,
    facts: Callable[[Mapping[str, Any], pd.DataFrame], str],
    columns: Callable[[pd.DataFrame, Footnotes], dict[str, Cell]],
    shown: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows,
) -> Iterator[Section]:
    """A table for every group of comparable runs, each below a title of its own (`tables.section`).

    Args:
        table: With `keys`, among them dataset, label, model and `setting`.
        keys: What the runs of a group share.
        words: By setting, as `distinguishing.setting_words` has them: for titles that would be alike.
        facts: What stands above a table: given the values of its keys, and its rows.
        columns: The cells of a table by their headers: given its rows, and its footnotes.
        shown: The rows that have a line, in their order.

    Yields:
        Title, facts, rows, columns and footnotes, which are whole once all cells are made.
    """
    found = list(per_setting(table, keys))
    titles = titles_apart([(title, group) for title, group, _ in found], words)
    for title, (_, group, rows) in zip(titles, found, strict=True):
        notes = Footnotes()
        yield title, facts(group, rows), shown(rows), columns(rows, notes), notes


def joined(found: Iterable[Section]) -> str:
    """All sections of a page in Markdown."""
    return "\n".join(section(*each) for each in found)
