"""Train one model at one scan level; `-m` sweeps. See `--help`."""

import os
from pathlib import Path

from pcr_exp.cli.answers import answer_of, in_words
from pcr_exp.cli.jobs import note_run
from pcr_exp.cli.launch import launch
from pcr_exp.config.commands import TrainConfig


def train(config: TrainConfig) -> str:
    """One run; returns "finished" or "skipped"."""
    from pcr_exp.runs.train_run import run_training

    done = run_training(config, draw=draw, claimed=note_run)
    if os.environ.get("RANK", "0") == "0" and (answer := answer_of(done.folder)) is not None:
        print(in_words(answer))
    return done.status


def draw(folder: Path) -> dict[str, Path]:
    """The figures of a run that ended; what draws is imported then, and not by every process of a run."""
    from pcr_exp.analysis.one_run import draw_run

    return draw_run(folder)


def main() -> None:
    """Run it as the command line says."""
    launch(train, "train", TrainConfig)
