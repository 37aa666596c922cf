"""The answer of a run in a line: what its last evaluation of the original images gave, and its figure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pcr_exp.errors import PcrExpError

_FIGURE = "training_curve.png"


@dataclass(frozen=True, slots=True)
class Answer:
    """A run's result."""

    headline: str
    """The words of the metric, such as `top-1`."""
    score: str
    """`71.3%`."""
    figure: str
    """The path of its training curve; empty if it has none."""
    about: str
    """`of 512 images, after 10 epochs`."""


def answer_of(run: str | Path) -> Answer | None:
    """The answer of a run's directory; None of one that has not evaluated, and without a directory."""
    if not str(run):
        return None
    from pcr_exp.cli.sweep_state import last_evaluation
    from pcr_exp.runs.directory import RunDirectory
    from pcr_exp.system.words import counted
    from pcr_exp.training.task import headline_called

    folder = Path(run)
    row = last_evaluation(folder)
    try:
        manifest = RunDirectory(folder).manifest()
    except PcrExpError:  # the run itself has said so
        return None
    if row is None or manifest is None:
        return None
    headline = headline_called(manifest.headline)
    figure = folder / _FIGURE
    return Answer(
        headline.words,
        f"{100 * row[f'val_{headline.name}']:.1f}%",
        str(figure) if figure.exists() else "",
        f"of {counted(row['num_val'], 'image')}, after {counted(row['epoch'], 'epoch')}",
    )


def describe_answer(answer: Answer) -> str:
    """Two lines for people."""
    said = f"{answer.headline} {answer.score} {answer.about}"
    return f"{said}\nfigure: {answer.figure}" if answer.figure else said
