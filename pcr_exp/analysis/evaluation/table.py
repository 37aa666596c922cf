"""Scores of images to a row per network and level, with what is lost against the original images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.cells import (
    NOTHING,
    Cell,
    Footnotes,
    difference_cell,
    markdown_table,
    percent,
)
from pcr_exp.analysis.core.statistics import half_width
from pcr_exp.config.labels import NO_GROUP
from pcr_exp.measuring.evaluation import LEVEL_COLUMNS, MARGIN, MODEL_COLUMNS
from pcr_exp.system.words import counted
from pcr_exp.training.task import area_under_roc, headline_called

MEASURES = ("top1", "top5", "loss")
TABLE_COLUMNS = [
    *(*MODEL_COLUMNS, *LEVEL_COLUMNS, "n"),
    *("top1", "top5", "balanced_accuracy", "loss"),
    *(f"{measure}_{part}" for measure in MEASURES for part in ("difference", "ci95")),
]
MATRIX_COLUMNS = ["trained_on", *LEVEL_COLUMNS, "n_seeds", "score", "score_min", "score_max"]


def level_table(scores: pd.DataFrame) -> pd.DataFrame:
    """TABLE_COLUMNS: one row per network and level.

    `<measure>_difference` is the mean over images of the level's score less that of the original image, and
    `_ci95` half of its 95 % interval: pairs of one image, Student's t. `balanced_accuracy` is the mean of the
    recalls of the classes that have an image. `auc` is there where the scores have margins.
    """
    rows: list[dict[str, Any]] = []
    # Scores of older measurements call the baseline group 1.
    scores = scores.assign(group=scores["group"].mask(scores["encoding"] == "baseline", NO_GROUP))
    for (name, trained_on, seed), of_model in scores.groupby(MODEL_COLUMNS, sort=True):
        reference = of_model[of_model["encoding"] == "baseline"].set_index("image")
        for level, images in of_model.groupby(LEVEL_COLUMNS, sort=True):
            row = dict(zip([*MODEL_COLUMNS, *LEVEL_COLUMNS], (name, trained_on, seed, *level), strict=True))
            row |= {measure: images[measure].mean() for measure in MEASURES}
            row |= {"n": len(images), "balanced_accuracy": images.groupby("label")["top1"].mean().mean()}
            if MARGIN in images:
                margins, labels = images[MARGIN].to_numpy(), images["label"].to_numpy()
                row["auc"] = area_under_roc(margins, labels == 1)
            for measure in MEASURES:
                differences = images.set_index("image")[measure] - reference[measure]
                row[f"{measure}_difference"] = differences.mean()
                row[f"{measure}_ci95"] = half_width(differences)
            rows.append(row)
    table = pd.DataFrame(rows, columns=[*TABLE_COLUMNS, *(["auc"] if MARGIN in scores else [])])
    return table.sort_values([*MODEL_COLUMNS, "decode", "encoding", "group"], ignore_index=True)


def matrix_table(table: pd.DataFrame, headline: str) -> pd.DataFrame:
    """MATRIX_COLUMNS: the headline by the level that was trained at and the level of the test, over seeds."""
    rows = []
    for keys, runs in table.groupby(["trained_on", *LEVEL_COLUMNS], sort=True):
        seeds = runs.drop_duplicates("seed")[headline]
        row = dict(zip(["trained_on", *LEVEL_COLUMNS], keys, strict=True))
        numbers = {"score": seeds.mean(), "score_min": seeds.min(), "score_max": seeds.max()}
        rows.append({**row, "n_seeds": len(seeds), **numbers})
    return pd.DataFrame(rows, columns=MATRIX_COLUMNS)


def levels_markdown(table: pd.DataFrame, headline: str, images: str, split: str) -> str:
    """The answer for people: each network's score at every level, and what top-1 loses to the originals."""
    lost = Footnotes()

    def loses(row: Mapping[Any, Any]) -> str:
        if row["encoding"] == "baseline":
            return NOTHING
        names = {"difference_mean": "top1_difference", "difference_ci95": "top1_ci95"}
        return difference_cell({name: row[column] for name, column in names.items()}, lost)

    columns: dict[str, Cell] = {
        "read at": lambda row: f"{row['scan']}, {row['decode']}",
        headline_called(headline).words: lambda row: percent(row[headline]),
        "top-1 against the originals, points": loses,
        "top-5": lambda row: percent(row["top5"]),
    }
    several = table["model"].nunique() > 1
    if several:
        columns = {"network": lambda row: str(row["model"]), **columns}
    n = counted(int(table["n"].max()), "image")
    about = f"{images}, {split}: {n}; ± half the 95 % interval over pairs of one image"
    return "\n\n".join(filter(None, [about, markdown_table(table, columns), str(lost)]))
