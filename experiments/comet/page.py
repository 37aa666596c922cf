"""A study of compressed activations on disk: tables, figures, and where they come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from experiments.comet.figures import (
    draw_activation_memory,
    draw_codec_errors,
    draw_gradient_errors,
    draw_gradient_sigma,
    draw_layer_bounds,
)
from pcr_exp.analysis.caption import NOT_TIMED, Caption, hardware_words
from pcr_exp.analysis.figure import save_figure
from pcr_exp.analysis.tables import Cell, kilobytes, markdown_table, number
from pcr_exp.errors import RunError
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import write_measured

TABLE_FILE = "activation_memory.md"
META_FILE = "activations.json"
FIGURES = {
    "codec_errors": ("Errors of activation codecs", "n = 1 batch"),
    "gradient_errors": ("Errors of weight gradients", "n = 1 batch of each size"),
    "gradient_sigma": ("Predicted and measured errors of weight gradients", "n = 1 batch of each size"),
    "activation_memory": ("Memory of one update", "n = 1 batch"),
    "layer_bounds": ("Error bounds and ratios over training", "n = 1 run"),
}
"""By file name, what a figure of a study shows, and of how much."""
"""At which gradient errors are drawn, where the json does not say."""


def write_study(
    folder: Path,
    codec: pd.DataFrame,
    sigmas: pd.DataFrame,
    normal: pd.DataFrame,
    memory: pd.DataFrame,
    *,
    title: str,
    bound: float,
    dataset: str,
) -> list[Path]:
    """Write four figures with their CSV, the memory table for people, and activations.json; returns all."""
    make_folder(folder)
    write_measured(folder / META_FILE, {"title": title, "bound": bound, "dataset": dataset})
    write_atomic(folder / TABLE_FILE, [memory_markdown(memory).encode()])
    return [
        folder / META_FILE,
        folder / TABLE_FILE,
        *save_study_figure("codec_errors", codec, folder, folder),
        *save_study_figure("gradient_errors", normal, folder, folder),
        *save_study_figure("gradient_sigma", sigmas, folder, folder),
        *save_study_figure("activation_memory", memory, folder, folder),
    ]


def save_study_figure(name: str, rows: pd.DataFrame, measured_in: Path, out: Path) -> list[Path]:
    """Draw one of FIGURES from its rows, with the caption that the json of a study gives, into `out`."""
    meta = json.loads((measured_in / META_FILE).read_text())
    shows, n = FIGURES[name]
    caption = Caption(
        shows=shows,
        of=(f"{meta['dataset']} · {meta['title'].replace(', ', ' · ')}",),
        n=n,
        hardware=hardware_words(meta),
        storage=NOT_TIMED,
    )
    draws: dict[str, Callable[[pd.DataFrame], Figure]] = {
        "codec_errors": draw_codec_errors,
        "gradient_errors": partial(draw_gradient_errors, bound=meta["bound"]),
        "gradient_sigma": draw_gradient_sigma,
        "activation_memory": draw_activation_memory,
        "layer_bounds": draw_layer_bounds,
    }
    return save_figure(draws[name], rows, out, name, caption)


def draw_run_layers(run: Path, folder: Path) -> list[Path]:
    """Draw bounds and ratios over a run's training, as `layer_bounds.{pdf,png,csv}` beside a study's json.

    Raises:
        RunError: the run compressed nothing.
    """
    directory = RunDirectory(run)
    path = directory.layers_path
    if not path.is_file():
        raise RunError(
            f"{path} is not there: wanted a run with activations=lossless or error_bounded, "
            "after its first checkpoint."
        )
    layers = pd.read_csv(path)
    return save_study_figure("layer_bounds", layers, folder, folder)


def memory_markdown(memory: pd.DataFrame) -> str:
    """The memory table for people."""
    first = memory.iloc[0]

    def known(cell: Cell) -> Cell:
        """Nothing for a mode that was not measured: its second cell has the reason."""
        return lambda row: "" if row["reason"] else cell(row)

    def share(column: str) -> Cell:
        return known(lambda row: f"{row[column] / first[column]:.2f}")

    columns: dict[str, Cell] = {
        "mode": lambda row: row["mode"],
        "kept": lambda row: row["reason"] or kilobytes(row["kept_bytes"]),
        "x none": share("kept_bytes"),
        "peak": known(lambda row: kilobytes(row["peak_bytes"])),
        "x none, peak": share("peak_bytes"),
        "conv inputs": known(lambda row: number(row["conv_bytes"], kilobytes)),
        "packed": known(lambda row: number(row["packed_bytes"], kilobytes)),
        "ratio": known(lambda row: number(row["ratio"], "{:.2f}".format)),
        "kept elsewhere": known(lambda row: number(row["held_bytes"], kilobytes)),
    }
    return markdown_table(memory, columns) + "\n"
