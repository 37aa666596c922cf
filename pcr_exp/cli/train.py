"""Train one model at one scan level; `-m` sweeps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch

from pcr_exp.cli.answers import answer_of, describe_answer
from pcr_exp.cli.dry_run import WORDS, Planned, index_of, num_in_files, update_seconds
from pcr_exp.cli.jobs import note_run
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.mixture import MixtureConfig
from pcr_exp.config.scan import PolicyConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.records.index import RecordIndex
from pcr_exp.runs.data import images_key_of
from pcr_exp.runs.directory import RunDirectory, planned_directory
from pcr_exp.runs.mixture import epoch_bytes, mixture_of, open_mixed
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import MIB
from pcr_exp.system.provenance import cpu_model, gpu_model
from pcr_exp.system.words import counted
from pcr_exp.training.clocks import open_device
from pcr_exp.training.models import open_model
from pcr_exp.training.task import open_task

_BYTES_PER_WEIGHT = 4
_STATES = {"sgd": 2, "adamw": 3}
"""Tensors of a checkpoint per weight: the weight itself, and the optimizer's state for it."""


def train(config: TrainConfig) -> str:
    """Train one run. Return "finished" or "skipped"."""
    done = run_training(config, draw=draw, claimed=note_run)
    if os.environ.get("RANK", "0") == "0" and (answer := answer_of(done.folder)) is not None:
        print(describe_answer(answer))
    return done.status


def draw(folder: Path) -> dict[str, Path]:
    """Draw the figures of a finished run. Plotting is imported only then, not by every process of a run."""
    from pcr_exp.analysis.one_run import draw_run

    return draw_run(folder)


def plan(config: TrainConfig) -> Planned:
    """Plan one run: whether it is finished already, its images and bytes, and its seconds by similar runs."""
    indexes = {
        encoding: index_of(config.dataset, config.records, "train", encoding)
        for encoding in {config.scan.encoding, "baseline"}
    }
    index, epochs = indexes[config.scan.encoding], config.training.epochs
    status, where = _status(config) if index else ("new", "")
    if status == "finished":
        nothing = dict.fromkeys(("seconds", "read_bytes", "disk_bytes"), 0.0)
        return Planned([f"finished: {where}"], nothing, "would be skipped")
    num_images = index.num_samples if index else num_in_files(config.dataset, ["train"])
    an_epoch = None
    if isinstance(config.dataset, MixtureConfig):
        train = open_mixed(config.dataset, config.records, "train", config.scan.encoding)
        num_images = len(mixture_of(config.dataset, train, config.num_slots))
        an_epoch = epoch_bytes(config.dataset, train, config.num_slots, config.scan.group)
    facts = [f"{config.model.name}, {config.scan.name}, {counted(epochs, 'epoch')}"]
    facts += [f"continues {where} ({status})"] if status != "new" else []
    facts += [] if index else ["records are not made yet, and so bytes are not known"]
    amounts = {"disk_bytes": float(_checkpoint_bytes(config, indexes["baseline"]))}
    facts.append(f"{counted(num_images, 'image')} an epoch")
    pace = find_pace(config)
    facts.append(pace.words)
    lasts_s = []
    if index is not None:
        at_group = index.epoch_bytes(min(config.scan.group, index.num_groups))
        at_most = (at_group if an_epoch is None else an_epoch) * epochs
        amounts["read_bytes"] = float(at_most)
        lasts_s.append(_storage_s(config.storage, at_most))
    if pace.seconds_per_image is not None:
        lasts_s.append(pace.seconds_per_image * num_images * epochs * config.echo.factor)
        amounts["seconds"] = max(lasts_s)
    stop_after_s = config.training.stop_after_s
    if stop_after_s is not None:
        facts.append(f"stops after {stop_after_s:g} s")
        amounts |= _until(stop_after_s, amounts)
    if isinstance(config.scan, PolicyConfig):
        facts.append("a policy: bytes are for the scan group that it begins with")
    return Planned(facts, amounts)


def _status(config: TrainConfig) -> tuple[str, str]:
    try:
        directory = planned_directory(config, images_key_of(config))
        return directory.status, str(directory.path)
    except PcrExpError:
        return "new", ""


def _storage_s(storage: StorageConfig, num_bytes: float) -> float:
    limit = storage.bandwidth_mib_per_s
    return 0.0 if limit is None else num_bytes / (limit * MIB)


def _until(stop_s: float, amounts: dict[str, float]) -> dict[str, float]:
    """Return the amounts that change if training stops after `stop_s` and reads a share of the bytes."""
    share = min(1.0, stop_s / amounts["seconds"]) if amounts.get("seconds") else 1.0
    read = {"read_bytes": amounts["read_bytes"] * share} if "read_bytes" in amounts else {}
    return {"seconds": min(stop_s, amounts.get("seconds", stop_s)), **read}


def _checkpoint_bytes(config: TrainConfig, index: RecordIndex | None) -> int:
    """Return the bytes of weights and optimizer state. The model is made without memory for its weights."""
    num_classes = 1000
    if index:
        num_classes = open_task(config.task, index.classes[config.dataset.label]).num_outputs
    with torch.device("meta"):
        model = open_model(replace(config.model, pretrained=False, weights=None), num_classes)
    num_weights = sum(parameter.numel() for parameter in model.parameters())
    return num_weights * _BYTES_PER_WEIGHT * _STATES.get(config.training.optimizer, 2)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of training per image trained on, excluding data wait."""

    seconds_per_image: float | None
    words: str


def find_pace(config: TrainConfig) -> Pace:
    """Return the median pace of finished runs with the same model, input size and number of processes.

    Only runs in `runs_root` from this machine count. If there are none, updates on random pixels are timed;
    evaluation and decoding come on top.
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
    """Yield seconds per image of every finished run like this on this machine, directly below `runs_root`."""
    wanted = (config.model.name, config.training.image_size, config.world_size)
    machine = (cpu_model(), gpu_model(open_device(config.training.device)))
    for path in sorted(Path(config.runs_root).glob("*/rows.jsonl")):
        directory = RunDirectory(path.parent)
        try:
            manifest, ran = directory.manifest(), directory.config()
        except (OSError, PcrExpError):  # damaged, or of another version: not counted
            continue
        if manifest is None or (manifest.cpu, manifest.gpu) != machine or manifest.status != "finished":
            continue
        if (ran["model"]["name"], ran["training"]["image_size"], ran.get("world_size", 1)) != wanted:
            continue
        last = json.loads(path.read_text().splitlines()[-1])
        seconds = float(last["wall_s"]) - float(last["wait_s"])
        num_images = float(last.get("samples_trained", last["samples_seen"]))
        if seconds > 0 and num_images > 0:
            yield seconds / num_images
