"""A run's result in short: its last evaluation on the original images, and its figure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pcr_exp.errors import PcrExpError

_FIGURE = "training_curve.png"


@dataclass(frozen=True, slots=True)
class Answer:
    """A run's result."""

    headline: str
    """Display name of the primary metric, such as `top-1`."""
    score: str
    """Its value, such as `71.3%`."""
    figure: str
    """Path of the training curve; empty if there is none."""
    about: str
    """How it was measured, such as `of 512 images, after 10 epochs`."""


def answer_of(run: str | Path) -> Answer | None:
    """Return the answer of a run's directory; None without a directory, a manifest or an evaluation."""
    if not str(run):
        return None
    from pcr_exp.cli.sweep_state import last_evaluation
    from pcr_exp.runs.directory import RunDirectory
    from pcr_exp.system.words import counted
    from pcr_exp.training.task import primary_metric_named

    folder = Path(run)
    row = last_evaluation(folder)
    try:
        manifest = RunDirectory(folder).manifest()
    except PcrExpError:  # the run itself has reported it
        return None
    if row is None or manifest is None:
        return None
    headline = primary_metric_named(manifest.headline)
    figure = folder / _FIGURE
    return Answer(
        headline.words,
        f"{100 * row[f'val_{headline.name}']:.1f}%",
        str(figure) if figure.exists() else "",
        f"of {counted(row['num_val'], 'image')}, after {counted(row['epoch'], 'epoch')}",
    )


def describe_answer(answer: Answer) -> str:
    """Format an answer for printing, with a second line for the figure if there is one."""
    said = f"{answer.headline} {answer.score} {answer.about}"
    return f"{said}\nfigure: {answer.figure}" if answer.figure else said
