"""Files of a `tolerance` measurement: rows, tables, figures, and the page with its two answers."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcr_exp.analysis.caption import Caption, describe_hardware, describe_storage, describe_task
from pcr_exp.analysis.figure import save_figure
from pcr_exp.analysis.tables import Cell, kilobytes, markdown_table, percent, three_figures
from pcr_exp.analysis.tolerance import (
    ORIGINAL,
    WORDS,
    Facts,
    Measured,
    answers_table,
    bytes_table,
    draw_curves,
    draw_matrix,
    matrix_of,
    points,
    similarity_name,
)
from pcr_exp.config.describe import storage_label
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.measuring.tolerance.answer import Answer, answer
from pcr_exp.measuring.tolerance.classifier import Predictions
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import write_measured
from pcr_exp.training.task import primary_metric_named
from pcr_exp.training.values import MEAN_AP, R2

PAGE_FILE, ROWS_FILE, META_FILE = "tolerance.md", "predictions.npz", "tolerance.json"
_WORDS_OF_CLASSES = ("classes", "logistic regression", "most frequent class")
_WORDS_OF = {
    MEAN_AP.name: ("classes, several of an image", "logistic regression of each", "on average a class has"),
    R2.name: ("a number", "ridge regression", ""),
}
"""By primary metric: words for the label's values, for the learner, and for `majority_share`."""
_OVER_BYTES = "![Points against all scans, over bytes](answers.png)"


def write_tolerance(folder: Path, measured: Measured, notes: Mapping[str, Any]) -> list[Path]:
    """Write the rows, the metadata, the tables, the figures and the page; return all files.

    Args:
        folder: Created if it does not exist.
        measured: The measurement.
        notes: Further entries of the JSON file, such as seconds.
    """
    make_folder(folder)
    write_atomic(folder / ROWS_FILE, [_packed(measured)])
    write_measured(folder / META_FILE, {"facts": asdict(measured.facts), **notes})
    return [folder / ROWS_FILE, folder / META_FILE, *write_tables(folder, load_tolerance(folder))]


def write_tables(folder: Path, measured: Measured) -> list[Path]:
    """Write the figures with their tables, the bytes and the page. Equal rows give identical files."""
    facts = measured.facts
    matrix, sizes = matrix_of(measured), bytes_table(measured)
    answers = answers_table(matrix, sizes, facts)
    files = []
    for name, draw, rows, shows in (
        ("answers", draw_curves, answers, "What is lost at each scan group"),
        ("matrix", draw_matrix, matrix, "What is lost, by training and test group"),
    ):
        files += save_figure(partial(draw, facts=facts), rows, folder, name, caption_of(measured, shows))
    write_atomic(folder / "bytes.csv", [sizes.to_csv(index=False).encode()])
    write_atomic(folder / PAGE_FILE, [page(matrix, sizes, answers, facts).encode()])
    return [*files, folder / "bytes.csv", folder / PAGE_FILE]


def caption_of(measured: Measured, shows: str) -> Caption:
    """Return the caption of a figure of one measurement."""
    facts = measured.facts
    return Caption(
        shows=shows,
        of=(describe_task(facts.dataset, facts.label, facts.model, facts.image_size),),
        n=f"n = {facts.num_images:,} images",
        hardware=measured.hardware,
        storage=describe_storage({"storage": facts.storage}),
    )


def load_tolerance(folder: Path) -> Measured:
    """Read a folder written by `write_tolerance`."""
    meta = json.loads((folder / META_FILE).read_text())
    with np.load(folder / ROWS_FILE) as rows:
        classes = rows["classes"].astype(np.int64)
        outputs = rows["log_odds"] if "log_odds" in rows else np.full(classes.shape, np.nan, np.float32)
        labels = rows["labels"]
        return Measured(
            Facts(**meta["facts"]),
            Predictions(classes, outputs, rows["strengths"], rows.get("margins")),
            labels if labels.dtype.kind == "f" else labels.astype(np.int64),
            rows["clusters"].astype(np.int64),
            rows["group_bytes"].astype(np.int64),
            rows["original_bytes"].astype(np.int64),
            rows.get("ms_ssim"),
            describe_hardware(meta),
            rows["ids"].tolist() if "ids" in rows else None,
        )


def _packed(measured: Measured) -> bytes:
    predictions = measured.predictions
    arrays: dict[str, Any] = {
        "classes": predictions.classes.astype(np.int16),
        "strengths": predictions.strengths,
        "labels": measured.labels.astype(np.int16) if measured.has_classes else measured.labels,
        "clusters": measured.clusters.astype(np.int32),
        "group_bytes": measured.group_bytes.astype(np.int32),
        "original_bytes": measured.original_bytes.astype(np.int32),
    }
    if measured.ms_ssim is not None:
        arrays["ms_ssim"] = measured.ms_ssim
    if measured.ids is not None:
        arrays["ids"] = np.array(measured.ids)
    if predictions.margins is not None:
        arrays["margins"] = predictions.margins.astype(np.float16)
    if measured.facts.headline == "auc" or not measured.has_classes:
        arrays["log_odds"] = predictions.outputs
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def page(matrix: pd.DataFrame, sizes: pd.DataFrame, answers: pd.DataFrame, facts: Facts) -> str:
    """Return the page in Markdown: both answers in words, the table, and the figures."""
    whole = _by(answers, "train_group")[max(facts.groups)]
    words = primary_metric_named(facts.headline).words
    clusters = f" in {facts.num_clusters:,} groups" if facts.num_clusters < facts.num_images else ""
    rejected = f" {facts.num_rejected:,} images could not be decoded." if facts.num_rejected else ""
    values, learner, guess = _WORDS_OF.get(facts.headline, _WORDS_OF_CLASSES)
    counted = f"{facts.num_classes} {values}" if facts.headline != R2.name else values
    share = facts.majority_share
    leans = "" if share is None else f" ({guess} {percent(share)} of the images)"
    intro = (
        f"{facts.num_images:,} images{clusters}, {counted}; {facts.model}, frozen, at "
        f"{facts.image_size} px; {learner}, {facts.num_folds} folds.{rejected} At all scans: "
        f"{words} {_interval(whole, 'score', 1)}; guessing reaches {percent(facts.chance_level)}{leans}. "
        f"Losses are differences of the same images; their 95 % intervals are of {facts.num_resamples:,} "
        f"resamples of {'groups of images' if clusters else 'images'}."
    )
    parts = [f"# How few scans does {facts.label} of {facts.dataset} tolerate?", intro]
    if whole["score_low"] <= facts.chance_level:
        apart = "numbers" if facts.headline == R2.name else "classes"
        parts.append(
            f"**These features do not tell the {apart} apart** (the interval of {words} reaches down to "
            "guessing), so there is nothing to lose, and no answer means anything."
        )
    parts += [
        describe_tolerance(answer(matrix, use, facts.margin), answers, sizes, facts) for use in DEPLOYMENTS
    ]
    parts += [_table(answers, sizes, facts), _OVER_BYTES, "![Every pair](matrix.png)"]
    return "\n\n".join(parts) + "\n"


def describe_tolerance(found: Answer, answers: pd.DataFrame, sizes: pd.DataFrame, facts: Facts) -> str:
    """Return an answer in Markdown: the smallest sufficient group, or why none is named."""
    rows = _by(answers[answers["deployment"] == found.deployment], "train_group")
    highest, margin = max(facts.groups), points(facts.margin)
    words = primary_metric_named(facts.headline).words
    begin = f"**Trained at a group, {WORDS[found.deployment]}:** "
    if found.tolerated == highest and not found.undecided:
        text = f"{begin}every group below {highest} loses {margin} of {words} or more."
    elif found.tolerated == highest:
        text = f"{begin}no group below {highest} is non-inferior within {margin} of {words} (95 %)."
    else:
        lost = _interval(rows[found.tolerated], "loss", 2)
        text = (
            f"{begin}**group {found.tolerated}** is the smallest that is non-inferior within {margin} of "
            f"{words} (95 %): it loses {lost} points. {_savings(found.tolerated, sizes, facts)}"
        )
    if found.undecided:
        text += f" Whether {_listed(found.undecided)}, these images cannot tell."
    if found.too_few:
        text += (
            f" **There are too few images to tell**: every interval reaches further than {margin}; about "
            f"{found.enough_images:,} would be enough for the narrowest."
        )
    return text


def _savings(group: int, sizes: pd.DataFrame, facts: Facts) -> str:
    by_group = _by(sizes, "group")
    ours, original = by_group[str(group)], by_group[ORIGINAL]
    text = (
        f"It reads {kilobytes(ours['image_bytes'])} an image, {percent(ours['share'])} of the files' "
        f"{kilobytes(original['image_bytes'])}"
    )
    if math.isnan(ours["epoch_s"]):
        return f"{text}; name a storage (such as storage=hdd) to see what that saves."
    return (
        f"{text}; from {storage_label(facts.storage)} an epoch of {facts.num_train_images:,} images takes "
        f"at least {three_figures(ours['epoch_s'])} s instead of {three_figures(original['epoch_s'])} s "
        f"({original['epoch_s'] / ours['epoch_s']:.2g} x)."
    )


def _table(answers: pd.DataFrame, sizes: pd.DataFrame, facts: Facts) -> str:
    same = _by(answers[answers["deployment"] == "same"], "train_group")
    timed = bool(sizes["epoch_s"].notna().all())
    columns: dict[str, Cell] = {
        "group": lambda row: str(row["train_group"]),
        "bytes per image": lambda row: kilobytes(row["image_bytes"]),
        "of the file": lambda row: percent(row["share"]),
        **({similarity_name(facts): lambda row: f"{row['ms_ssim']:.3f}"} if "ms_ssim" in sizes else {}),
        f"used at group {max(facts.groups)}": lambda row: percent(row["score"]),
        "lost, points": lambda row: _interval(row, "loss", 2),
        "": lambda row: row["verdict"],
        "used at the same": lambda row: percent(same[row["train_group"]]["score"]),
        "lost, points ": lambda row: _interval(same[row["train_group"]], "loss", 2),
        " ": lambda row: same[row["train_group"]]["verdict"],
    }
    if timed:
        columns["s per epoch, storage alone"] = lambda row: three_figures(row["epoch_s"])
    return markdown_table(answers[answers["deployment"] == "full"], columns)


def _by(rows: pd.DataFrame, column: str) -> dict[Any, dict[Any, Any]]:
    """Return the rows by their value in a column; if several share a value, the last one."""
    return {row[column]: row for row in rows.to_dict("records")}


def _interval(row: Mapping[Any, Any], what: str, decimals: int) -> str:
    mean, low, high = (100 * float(row[name]) for name in (what, f"{what}_low", f"{what}_high"))
    unit = " %" if what == "score" else ""
    return f"{mean:.{decimals}f}{unit} ({low:.{decimals}f} to {high:.{decimals}f})"


def _listed(groups: list[int]) -> str:
    if len(groups) == 1:
        return f"group {groups[0]} is"
    return f"groups {', '.join(map(str, groups[:-1]))} and {groups[-1]} are"
