"""How fast runs like a planned one trained: from rows of finished runs, here and among committed results."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from pcr_exp.config.runners import TrainConfig
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.packed import ROWS_FILE, RUNS_FILE

Kind = tuple[str, int, int]
"""Model, input size (px), processes: what decides most of a run's speed."""
_COLUMNS = {"run_id", "wall_s", "wait_s", "samples_seen", "samples_trained"}


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of training and evaluation per image trained on, without waiting for data."""

    seconds_per_image: float | None
    words: str


def find_pace(config: TrainConfig, roots: Iterable[Path]) -> Pace:
    """The median over finished runs of the same model, input size and number of processes.

    Args:
        config: What is planned.
        roots: Folders below which finished runs lie, in folders of their own or packed.
    """
    wanted = (config.model.name, config.training.image_size, config.world_size)
    found = [pace for root in roots for kind, pace in finished_paces(root.resolve()) if kind == wanted]
    like = f"{config.model.name} at {config.training.image_size} px"
    if not found:
        return Pace(None, f"seconds are not known: no finished run of {like}")
    middle = median(found)
    return Pace(middle, f"{1 / middle:,.0f} images/s, the median of {len(found)} finished runs of {like}")


@functools.cache
def finished_paces(root: Path) -> list[tuple[Kind, float]]:
    """Kind, and seconds per image, of every finished run below a folder; none if it is not there."""
    if not root.is_dir():
        return []
    packed = [pace for path in sorted(root.rglob(RUNS_FILE)) for pace in _of_a_set(path)]
    return packed + [pace for path in sorted(root.rglob("rows.jsonl")) for pace in _of_a_run(path)]


def _of_a_set(path: Path) -> Iterator[tuple[Kind, float]]:
    runs = json.loads(path.read_text())
    rows = pd.read_csv(path.with_name(ROWS_FILE), usecols=lambda column: column in _COLUMNS)
    for run_id, last in rows.groupby("run_id", sort=False).last().iterrows():
        yield from _pace(runs[run_id]["config"], last.to_dict())


def _of_a_run(path: Path) -> Iterator[tuple[Kind, float]]:
    directory = RunDirectory(path.parent)
    if directory.config_path.exists() and directory.status == "finished":
        yield from _pace(directory.config(), json.loads(path.read_text().splitlines()[-1]))


def _pace(config: Mapping[str, Any], last: Mapping[Any, Any]) -> Iterator[tuple[Kind, float]]:
    kind = (config["model"]["name"], config["training"]["image_size"], config.get("world_size", 1))
    seconds = float(last["wall_s"]) - float(last["wait_s"])
    num_images = float(last.get("samples_trained", last["samples_seen"]))
    if seconds > 0 and num_images > 0:
        yield kind, seconds / num_images
