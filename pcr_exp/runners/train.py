"""Train one model at one scan level; `-m` sweeps. See `--help`."""

from pathlib import Path

from pcr_exp.config.runners import TrainConfig
from pcr_exp.runners.launch import launch
from pcr_exp.runners.running_job import note_run


def train(config: TrainConfig) -> str:
    """One run; returns "finished" or "skipped"."""
    from pcr_exp.runs.train_run import run_training

    return run_training(config, draw=draw, claimed=note_run).status


def draw(folder: Path) -> dict[str, Path]:
    """The figures of a run that ended; what draws is imported then, and not by every process of a run."""
    from pcr_exp.analysis.scans.one_run import draw_run

    return draw_run(folder)


def main() -> None:
    """Run it as the command line says."""
    launch(train, "train", TrainConfig)
