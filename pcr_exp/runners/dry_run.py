"""`--dry-run`: what a command would run, read, take and leave on disk. Nothing is run or written for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.evaluation import ALL, EvaluateConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.runners import (
    DemoConfig,
    FiguresConfig,
    PrepareConfig,
    QualityConfig,
    TrainConfig,
)
from pcr_exp.config.scan import PolicyConfig
from pcr_exp.config.storage import StorageConfig
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.config.tolerance import ToleranceConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.places import CHECKOUT
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.prepare import records_folder
from pcr_exp.records.stored_index import read_index
from pcr_exp.runners.outcomes import amounts_in_words
from pcr_exp.runners.pace import find_pace
from pcr_exp.storage.open import open_root
from pcr_exp.system import MIB

WOULD_RUN = "would run"
_BYTES_PER_WEIGHT = 4
_STATES = {"sgd": 2, "adamw": 3}
"""Tensors of a checkpoint per weight: the weight itself, and what the optimizer keeps of it."""
_NATIVE_IMAGE_S = {"quality": 0.03, "forward": 0.018, "transcode": 0.007}
"""Seconds of one core per image: MS-SSIM of a group at 256 px, EfficientNet-Lite0 at 160 px, transcoding a
native ImageNet file (results/records_speed). Good to a factor of two or so on other images and machines.
"""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job that has not run."""

    facts: list[str]
    """What it would do, in words."""
    amounts: dict[str, float] = field(default_factory=dict)
    """`seconds`, `read_bytes` and `disk_bytes`, as far as they are known (`outcomes.AMOUNTS`)."""
    status: str = WOULD_RUN

    @property
    def words(self) -> str:
        """All of it in one line."""
        return "; ".join([*self.facts, *([amounts_in_words(self.amounts)] if self.amounts else [])])


def plan(config: Any) -> Planned:
    """What a command of the library would do with its configuration; others bring plans along (`launch`)."""
    return next((made(config) for kind, made in PLANS.items() if isinstance(config, kind)), _unknown(config))


def _unknown(config: Any) -> Planned:
    """A runner that has no plan of its own: where it would write."""
    return Planned([f"into {config.out}" if hasattr(config, "out") else "nothing is known of it"])


def plan_training(config: TrainConfig) -> Planned:
    """One run: whether it is done already, its images and bytes, and its seconds by runs like it."""
    indexes = {
        encoding: index_of(config.dataset, config.records, "train", encoding)
        for encoding in {config.scan.encoding, "baseline"}
    }
    index, epochs = indexes[config.scan.encoding], config.training.epochs
    status, where = _status(config) if index else ("new", "")
    if status == "finished":
        nothing = dict.fromkeys(("seconds", "read_bytes", "disk_bytes"), 0.0)
        return Planned([f"finished: {where}"], nothing, "would be skipped")
    num_images = index.num_samples if index else _stated_images(config.dataset)
    facts = [f"{config.model.name}, {config.scan.name}, {epochs} epochs"]
    facts += [f"continues {where}, which {status}"] if status != "new" else []
    facts += [] if index else ["records are not made yet, and so bytes are not known"]
    amounts = {"disk_bytes": float(_checkpoint_bytes(config, indexes["baseline"]))}
    if num_images is not None:
        facts.append(f"{num_images:,} images an epoch")
    committed = [] if CHECKOUT is None else [CHECKOUT / "results"]
    pace = find_pace(config, [Path(config.runs_root), *committed])
    facts.append(pace.words)
    lasts_s = []
    if index is not None:
        at_most = index.epoch_bytes(min(config.scan.group, index.num_groups)) * epochs
        amounts["read_bytes"] = float(at_most)
        lasts_s.append(_storage_s(config.storage, at_most))
    if num_images is not None and pace.seconds_per_image is not None:
        lasts_s.append(pace.seconds_per_image * num_images * epochs * config.echo.factor)
        amounts["seconds"] = max(lasts_s)
    stop_after_s = config.training.stop_after_s
    if stop_after_s is not None:
        facts.append(f"stops after {stop_after_s:g} s")
        amounts |= _until(stop_after_s, amounts)
    if isinstance(config.scan, PolicyConfig):
        facts.append("a policy: bytes are those of the group that it begins with")
    return Planned(facts, amounts)


def plan_preparing(config: PrepareConfig) -> Planned:
    """Both encodings of all splits."""
    num_images = _stated_images(config.dataset)
    facts = [f"records of {config.dataset.name} below {config.records.root}"]
    if index_of(config.dataset, config.records, "train", "baseline") is not None:
        return Planned([*facts, "there already: images are compared with them"])
    if num_images is None:
        return Planned([*facts, "twice the space of the images"])
    facts.append(f"{num_images:,} images, twice their space")
    return Planned(facts, _amounts(num_images, "transcode", config.records.num_workers))


def plan_quality(config: QualityConfig) -> Planned:
    """MS-SSIM of images x groups."""
    if config.image is not None:
        return Planned([f"{config.image} at groups {config.groups}"], {"seconds": 2.0})
    num = config.max_images * len(config.groups)
    facts = [f"{config.max_images} images of {config.dataset.name} at {len(config.groups)} groups"]
    return Planned(facts, _amounts(num, "quality", config.num_workers))


def plan_tolerance(config: ToleranceConfig) -> Planned:
    """Features of images x levels; classifiers take less."""
    num_images = min(config.max_images or 10**9, _stated_images(config.dataset) or 10**9)
    if num_images == 10**9:
        return Planned([f"all images of {config.dataset.name}, into {config.place}"])
    num = num_images * (len(config.groups) + 1)
    facts = [f"at most {num_images:,} images at {len(config.groups) + 1} levels, into {config.place}"]
    return Planned(facts, _amounts(num, "forward", config.num_workers))


def plan_evaluation(config: EvaluateConfig) -> Planned:
    """Images x levels x networks."""
    levels = 1 + len(config.groups) * len(config.decodes)
    facts = [f"{levels} levels of {config.dataset.name}, into {config.place}"]
    if config.split == ALL:
        return Planned([*facts, "images are read from their files, and no records are made"])
    index = index_of(config.dataset, config.records, config.split, "baseline")
    if index is None:
        return Planned([*facts, "records are not made yet"])
    networks = max(1, len(config.runs))
    facts.append(f"{index.num_samples:,} images, {networks} networks or folders of runs")
    return Planned(facts, _amounts(index.num_samples * levels * networks, "forward", 1))


def plan_throughput(config: ThroughputConfig) -> Planned:
    """Loaders x limits x repeats; a cluster's plan measures nothing."""
    if config.plan is not None:
        return Planned([f"predicts for {config.plan.name}, measures nothing"], {"seconds": 5.0})
    if not config.measure:
        return Planned([f"draws what {config.out} holds"], {"seconds": 5.0})
    limits = sum(map(len, (config.bandwidths_mib_per_s, config.latencies_ms, config.requests_per_s)))
    loaders = len(config.scans) + len(config.peers)
    each = config.repeats * (loaders * 2 + (len(config.scans) + 1) * limits)
    facts = [f"{loaders} loaders, {limits} limits, {config.repeats} repeats, into {config.out}"]
    facts.append("at least, for a measurement is at least one epoch; formats are built first")
    return Planned(facts, {"seconds": each * config.measure_s})


def plan_demo(config: DemoConfig) -> Planned:
    """Its grid of trainings."""
    num_runs = len(config.labels) * len(config.scans)
    return Planned(
        [f"{num_runs} trainings on the embedded photographs, into {config.out}"], {"seconds": 240.0}
    )


def plan_figures(config: FiguresConfig) -> Planned:
    """What it would draw from."""
    runs = (
        sum(1 for _ in Path(config.runs_root).glob("*/rows.jsonl")) if Path(config.runs_root).is_dir() else 0
    )
    facts = [f"{runs} folders of runs below {config.runs_root}", f"measurements below {config.quality_root}"]
    return Planned([*facts, f"into {config.out}"])


PLANS: dict[type, Callable[[Any], Planned]] = {
    TrainConfig: plan_training,
    PrepareConfig: plan_preparing,
    QualityConfig: plan_quality,
    ToleranceConfig: plan_tolerance,
    EvaluateConfig: plan_evaluation,
    ThroughputConfig: plan_throughput,
    DemoConfig: plan_demo,
    FiguresConfig: plan_figures,
}


def index_of(dataset: DatasetConfig, records: RecordsConfig, split: str, encoding: str) -> RecordIndex | None:
    """The index of a split's records; None where there are none yet."""
    folder = f"{records_folder(dataset, records)}/{split}/{encoding}"
    try:
        return read_index(open_root(records), folder)
    except PcrExpError:
        return None


def _status(config: TrainConfig) -> tuple[str, str]:
    from pcr_exp.runs.data import images_key_of
    from pcr_exp.runs.directory import RunDirectory
    from pcr_exp.runs.identity import run_id

    try:
        path = Path(config.runs_root) / run_id(config, images_key_of(config))
    except PcrExpError:
        return "new", ""
    return RunDirectory(path).status, str(path)


def _stated_images(dataset: DatasetConfig) -> int | None:
    """Training images by the settings alone; None where only the folder knows."""
    num = getattr(dataset, "num_train", None)
    return dataset.max_train_images if num is None else min(num, dataset.max_train_images or num)


def _storage_s(storage: StorageConfig, num_bytes: float) -> float:
    limit = storage.bandwidth_mib_per_s
    return 0.0 if limit is None else num_bytes / (limit * MIB)


def _until(stop_s: float, amounts: dict[str, float]) -> dict[str, float]:
    """What changes where training stops after so many seconds: it reads a share of the bytes."""
    share = min(1.0, stop_s / amounts["seconds"]) if amounts.get("seconds") else 1.0
    read = {"read_bytes": amounts["read_bytes"] * share} if "read_bytes" in amounts else {}
    return {"seconds": min(stop_s, amounts.get("seconds", stop_s)), **read}


def _amounts(num: int, work: str, num_workers: int) -> dict[str, float]:
    return {"seconds": num * _NATIVE_IMAGE_S[work] / num_workers}


def _checkpoint_bytes(config: TrainConfig, index: RecordIndex | None) -> int:
    """Weights and what the optimizer keeps of them; the model is made without memory for its weights."""
    from dataclasses import replace

    import torch

    from pcr_exp.training.models import open_model

    num_classes = len(index.classes[config.dataset.label]) if index else 1000
    with torch.device("meta"):
        model = open_model(replace(config.model, pretrained=False, weights=None), num_classes)
    num_weights = sum(parameter.numel() for parameter in model.parameters())
    return num_weights * _BYTES_PER_WEIGHT * _STATES.get(config.training.optimizer, 2)
