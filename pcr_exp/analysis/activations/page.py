"""A study of compressed activations on disk: tables, figures, and where they come from."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf

from pcr_exp.analysis.activations.figures import (
    draw_activation_memory,
    draw_codec_errors,
    draw_gradient_errors,
    draw_gradient_sigma,
    draw_layer_bounds,
)
from pcr_exp.analysis.core.cells import Cell, kilobytes, markdown_table, number, task_title
from pcr_exp.analysis.core.figure import save_figure
from pcr_exp.errors import RunError
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import write_measured

TABLE_FILE = "activation_memory.md"
META_FILE = "activations.json"


def write_study(
    folder: Path,
    codec: pd.DataFrame,
    sigmas: pd.DataFrame,
    normal: pd.DataFrame,
    memory: pd.DataFrame,
    *,
    title: str,
    bound: float,
) -> list[Path]:
    """Write four figures with their CSV, the memory table for people, and activations.json; returns all."""
    make_folder(folder)
    write_measured(folder / META_FILE, {"title": title})
    write_atomic(folder / TABLE_FILE, [memory_markdown(memory).encode()])
    return [
        folder / META_FILE,
        folder / TABLE_FILE,
        *save_figure(draw_codec_errors(codec), codec, folder, "codec_errors"),
        *save_figure(draw_gradient_errors(normal, bound), normal, folder, "gradient_errors"),
        *save_figure(draw_gradient_sigma(sigmas), sigmas, folder, "gradient_sigma"),
        *save_figure(draw_activation_memory(memory, title), memory, folder, "activation_memory"),
    ]


def draw_run_layers(run: Path, folder: Path) -> list[Path]:
    """Draw bounds and ratios over a run's training, as `layer_bounds.{pdf,png,csv}`.

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
    config = OmegaConf.load(directory.config_path)
    title = task_title(config.dataset.name, config.dataset.label, config.model.name)
    return save_figure(draw_layer_bounds(layers, title), layers, folder, "layer_bounds")


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
