"""Lab notes of the experiment files, and the page that lists them by the papers' figures.

In a checkout:

    python -m experiments.catalogue        # writes configs/experiment/README.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from pcr_exp.errors import RunError
from pcr_exp.places import CHECKOUT, CONFIGS

FOLDER = CONFIGS / "experiment"

PAGE = FOLDER / "README.md"

_PROCESSES = re.compile(r"torchrun --nproc-per-node (\d+)")

_RUNNER = re.compile(r"-m experiments\.(\w+)")

WITHOUT_AN_EXPERIMENT = {
    "PCR: table of datasets": "`python -m experiments.prepare dataset=<dataset>` prints it",
    "Echoing: table of tasks": "the tasks are PCR's datasets: `configs/dataset`",
    "3LC: speed of the codec": "`python -m experiments.threelc.codec_speed`, results/codec_speed",
    "COMET: throughput against batch size": "wants a GPU: `python -m experiments.gpu`",
}
"""Figures and tables without an experiment file of their own, and what produces them."""

_OPENING = """# Experiments, by the figures and tables of the papers

One file each: what it shows, its command, what to expect, its cost, and below `smoke` a size for seconds.
Add to a command `runner=smoke`, which tries it on the embedded dataset, or `--dry-run`, which says what would
run, with hours, bytes and disk, and runs nothing. Made by `python -m experiments.catalogue` from the files.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabNote:
    """Lab note of an experiment file. Notes in files may have further keys."""

    name: str
    says: str
    """The result that it shows. The catalogue lists our own experiments by its first sentence."""
    papers: Sequence[str]
    """Figures and tables of the papers that it reproduces; empty for experiments of our own."""
    command: str
    """One or more lines of shell commands."""
    expect: str
    cost: str

    @property
    def runner(self) -> str:
        """The runner of its first command, such as `train`, which is also the default."""
        found = _RUNNER.search(self.command)
        return found[1] if found else "train"

    @property
    def num_processes(self) -> int:
        """Number of processes that its first `torchrun` starts; 1 without one."""
        found = _PROCESSES.search(self.command)
        return int(found[1]) if found else 1


_KEYS = [field.name for field in fields(LabNote) if field.name != "name"]


def read_note(path: Path) -> LabNote:
    """Read the note of one file.

    Raises:
        RunError: the note is missing or lacks a key.
    """
    note: dict[str, Any] = yaml.safe_load(path.read_text()).get("note", {})
    if missing := [key for key in _KEYS if key not in note]:
        raise RunError(f"{path}: wanted a lab note with {', '.join(_KEYS)}; its key `note` lacks {missing}.")
    return LabNote(name=path.stem, **{key: note[key] for key in _KEYS})


def read_notes() -> list[LabNote]:
    """Read the notes of all experiments, sorted by name."""
    return [read_note(path) for path in sorted(FOLDER.glob("*.yaml"))]


def page(notes: list[LabNote]) -> str:
    """Return the catalogue in Markdown: a row per figure or table of a paper, then our own experiments."""
    rows = {figure: _row(figure, note) for note in notes for figure in note.papers}
    rows |= {figure: f"| {figure} | | | {what} |" for figure, what in WITHOUT_AN_EXPERIMENT.items()}
    papers = ["PCR", "Echoing", "3LC", "COMET"]
    ordered = [rows[figure] for paper in papers for figure in rows if figure.startswith(f"{paper}:")]
    own = [_row(_first_sentence(note.says), note) for note in notes if not note.papers]
    head = ["| | experiment | runner | cost |", "| --- | --- | --- | --- |"]
    return "\n".join([_OPENING, *head, *ordered, "", "## Ours", "", *head, *own, ""])


def _row(what: str, note: LabNote) -> str:
    link = f"[{note.name}]({note.name}.yaml)"
    return f"| {what} | {link} | `{note.runner}` | {_first_sentence(note.cost)} |"


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".")


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrite the page. Raises RunError if the package is installed without the repository."""
    parser = argparse.ArgumentParser(prog="python -m experiments.catalogue", description=__doc__)
    parser.parse_args(arguments)
    if CHECKOUT is None:
        raise RunError("catalogue: wanted a checkout of the repository, whose page it writes.")
    PAGE.write_text(page(read_notes()))


if __name__ == "__main__":
    main()
