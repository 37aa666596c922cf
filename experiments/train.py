"""Train one model at one scan level; `-m` sweeps. See `--help`."""

from experiments.launch import launch
from pcr_exp.analysis.scans.run_figures import draw_run
from pcr_exp.config.runners import TrainConfig
from pcr_exp.runs.train_run import run_training


def train(config: TrainConfig) -> str:
    """One run; returns "finished" or "skipped"."""
    return run_training(config, draw=draw_run).status


if __name__ == "__main__":
    launch(train, "train", TrainConfig)
