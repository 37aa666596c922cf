"""The files of an evaluation: scores of every image, the table, the figures, and where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from pcr_exp.analysis.core.caption import NOT_TIMED, Caption, hardware_words, task_words
from pcr_exp.analysis.core.figure import save_figure
from pcr_exp.analysis.evaluation.figures import draw_losses, draw_matrix
from pcr_exp.analysis.evaluation.table import level_table, matrix_table
from pcr_exp.errors import ConfigError
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import cpu_model, gpu_model, write_measured
from pcr_exp.training.task import headline_called

SCORES_FILE, TABLE_FILE, META_FILE = "scores.csv", "levels.csv", "evaluation.json"


def write_evaluation(
    folder: Path, scores: pd.DataFrame, settings: Mapping[str, Any], device: torch.device
) -> list[Path]:
    """Write the scores, what they were made with, and all that follows from them; return the files.

    Args:
        folder: Is made.
        scores: As `measuring.evaluation.score_images` gives them.
        settings: `dataset`, `label`, `split`, `model`, `image_size_px`, `headline` (see `check_headline`) and
            more for the json.
        device: What computed.
    """
    gpu = gpu_model(device)
    facts = {
        **settings,
        "num_images": int(scores["image"].nunique()),
        "gpu": gpu,
        "hardware": gpu or cpu_model(),
    }
    make_folder(folder)
    write_atomic(folder / SCORES_FILE, [scores.to_csv(index=False).encode()])
    write_measured(folder / META_FILE, facts)
    return [folder / SCORES_FILE, folder / META_FILE, *draw_evaluation(folder)]


def draw_evaluation(folder: Path) -> list[Path]:
    """Make the table and the figures again, from the files of scores and settings alone; return them."""
    scores = pd.read_csv(folder / SCORES_FILE)
    facts = json.loads((folder / META_FILE).read_text())
    table = level_table(scores)
    write_atomic(folder / TABLE_FILE, [table.to_csv(index=False).encode()])
    files = [folder / TABLE_FILE]
    if table["model"].nunique() == 1:
        caption = _caption(facts, "Accuracy lost at each scan group", f"n = {facts['num_images']} images")
        return [*files, *save_figure(draw_losses(table), table, folder, "losses", caption)]
    matrix = matrix_table(table, facts["headline"])
    words = headline_called(facts["headline"]).words
    seeds = " or ".join(str(count) for count in sorted(set(matrix["n_seeds"])))
    caption = _caption(facts, f"{words} by training and test level", f"n = {seeds} seeds")
    return [*files, *save_figure(draw_matrix(matrix, words), matrix, folder, "matrix", caption)]


def _caption(facts: Mapping[str, Any], shows: str, n: str) -> Caption:
    task = task_words(facts["dataset"], facts["label"], facts["model"], facts["image_size_px"])
    return Caption(shows=shows, of=(task,), n=n, hardware=hardware_words(facts), storage=NOT_TIMED)


def check_headline(name: str) -> None:
    """Raise ConfigError unless evaluations have a column of this headline."""
    if name not in ("top1", "balanced_accuracy", "auc"):
        raise ConfigError(
            f"task: its headline {name} is not made of scores of images here; wanted task=classification, "
            "task=balanced or task=auc."
        )
