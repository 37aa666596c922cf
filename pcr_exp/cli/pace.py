"""How fast a planned run trains: as runs like it that finished on this machine, else timed for a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pcr_exp.cli.timed import WORDS, update_seconds
from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.system.provenance import cpu_model, gpu_model
from pcr_exp.system.words import counted
from pcr_exp.training.clocks import open_device


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of training per image trained on, without waiting for data."""

    seconds_per_image: float | None
    words: str


def find_pace(config: TrainConfig) -> Pace:
    """The median of finished runs of the same model, input size and processes in `runs_root`, made here.

    Runs of other machines do not count. Where there is none, updates on random pixels are timed; evaluation
    and decoding come on top.
    """
    like = f"{config.model.name} at {config.training.image_size} px"
    found = list(finished_paces(config))
    if found:
        middle = median(found)
        of = f"the median of {counted(len(found), 'finished run')} of {like} on this machine"
        return Pace(middle, f"{1 / middle:.3g} images/s, {of}")
    try:
        seconds = update_seconds(config) / config.world_size
    except PcrExpError as error:
        return Pace(None, f"seconds are not known: {error}")
    rate = f"{1 / seconds:.3g} images/s of updates alone"
    return Pace(seconds, f"{rate}, {WORDS}: evaluation and decoding come on top")


def finished_paces(config: TrainConfig) -> Iterator[float]:
    """Seconds per image of every finished run like this one, on this machine, directly below `runs_root`."""
    wanted = (config.model.name, config.training.image_size, config.world_size)
    machine = (cpu_model(), gpu_model(open_device(config.training.device)))
    for path in sorted(Path(config.runs_root).glob("*/rows.jsonl")):
        directory = RunDirectory(path.parent)
        manifest = directory.manifest()
        if manifest is None or (manifest.cpu, manifest.gpu) != machine or directory.status != "finished":
            continue
        ran = directory.config()
        if (ran["model"]["name"], ran["training"]["image_size"], ran.get("world_size", 1)) != wanted:
            continue
        last = json.loads(path.read_text().splitlines()[-1])
        seconds = float(last["wall_s"]) - float(last["wait_s"])
        num_images = float(last.get("samples_trained", last["samples_seen"]))
        if seconds > 0 and num_images > 0:
            yield seconds / num_images
