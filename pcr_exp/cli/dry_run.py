"""`--dry-run`: what a command would run, read, take and leave on disk. Nothing is run or written for it.

It opens records, or else the dataset, and counts; it times a second of this machine, or says that seconds are
not known. What the command itself would refuse, such as a folder that is not there, is an error here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pcr_exp.cli.jobs import amounts_in_words
from pcr_exp.cli.pace import find_pace
from pcr_exp.cli.timed import WORDS, encode_seconds, forward_seconds, quality_seconds
from pcr_exp.config.commands import DemoConfig, FiguresConfig, PrepareConfig, TrainConfig
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.measuring import ALL, IMAGE_SIZE, EvaluateConfig, QualityConfig, ToleranceConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.scan import PolicyConfig
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.datasets.sample import SPLITS, open_dataset, open_images
from pcr_exp.errors import PcrExpError, RecordError
from pcr_exp.images.codec import find_codec
from pcr_exp.records.fingerprint import sample_bytes
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.index_table import read_index
from pcr_exp.records.prepare import is_finished, records_folder
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.open import open_root
from pcr_exp.system import MIB
from pcr_exp.system.words import counted

WOULD_RUN = "would run"
NOT_KNOWN = "seconds are not known"
_BYTES_PER_WEIGHT = 4
_STATES = {"sgd": 2, "adamw": 3}
"""Tensors of a checkpoint per weight: the weight itself, and what the optimizer keeps of it."""
_SIZED = 500
"""Files whose mean size stands for all."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job that has not run."""

    facts: list[str]
    """What it would do, in words."""
    amounts: dict[str, float] = field(default_factory=dict)
    """`seconds`, `read_bytes` and `disk_bytes`, as far as they are known (`jobs.AMOUNTS`)."""
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
    num_images = index.num_samples if index else num_in_files(config.dataset, ["train"])
    facts = [f"{config.model.name}, {config.scan.name}, {counted(epochs, 'epoch')}"]
    facts += [f"continues {where}, which {status}"] if status != "new" else []
    facts += [] if index else ["records are not made yet, and so bytes are not known"]
    amounts = {"disk_bytes": float(_checkpoint_bytes(config, indexes["baseline"]))}
    facts.append(f"{counted(num_images, 'image')} an epoch")
    pace = find_pace(config)
    facts.append(pace.words)
    lasts_s = []
    if index is not None:
        at_most = index.epoch_bytes(min(config.scan.group, index.num_groups)) * epochs
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
        facts.append("a policy: bytes are those of the group that it begins with")
    return Planned(facts, amounts)


def plan_preparing(config: PrepareConfig) -> Planned:
    """Both encodings of all splits: of records that are there already, nothing."""
    facts = [f"records of {config.dataset.name} below {config.records.root}"]
    if _are_made(config):
        return Planned([*facts, "there already: images are compared with them"])
    if isinstance(config.dataset, PhotosConfig):
        return Planned([*facts, f"{counted(num_in_files(config.dataset), 'image')}, made first", NOT_KNOWN])
    samples = list(chain.from_iterable(open_dataset(config.dataset).splits.values()))
    codec = find_codec(config.records.codec_id, "records.codec")
    seconds = encode_seconds(samples, codec, config.records.max_pixels) / config.records.num_workers
    some = samples[:_SIZED]
    each_bytes = sum(sample_bytes(sample) or 0 for sample in some) / len(some)
    facts.append(f"{counted(len(samples), 'image')}, twice their space; encoding {WORDS}")
    return Planned(facts, {"seconds": seconds * len(samples), "disk_bytes": 2 * each_bytes * len(samples)})


def _are_made(config: PrepareConfig) -> bool:
    try:
        return index_of(config.dataset, config.records, "train", "baseline") is not None
    except RecordError:  # in a bucket there are none yet
        if "://" in config.records.root:
            return False
        raise


def plan_quality(config: QualityConfig) -> Planned:
    """MS-SSIM of images x groups."""
    if config.image is not None:
        return Planned([f"{config.image} at groups {config.groups}, into {config.place}"])
    index = index_of(config.dataset, config.records, config.split, "pcr")
    there = index.num_samples if index else num_in_files(config.dataset, [config.split])
    num = min(config.max_images, there)
    at = counted(len(config.groups), "group")
    facts = [f"{num:,} of {counted(there, 'image')} of {config.dataset.name} at {at}"]
    if index is None:
        return Planned([*facts, "records are not made yet", NOT_KNOWN])
    folder = f"{records_folder(config.dataset, config.records)}/{config.split}/pcr"
    records = RecordSet(open_root(config.records), folder, max_pixels=config.records.max_pixels)
    seconds = quality_seconds(records, config.groups) * num / config.num_workers
    return Planned([*facts, f"one image {WORDS}"], {"seconds": seconds})


def plan_tolerance(config: ToleranceConfig) -> Planned:
    """Features of images x levels; classifiers come on top."""
    there = num_in_files(config.dataset, config.splits)
    num_images, levels = min(config.max_images or there, there), len(config.groups) + 1
    facts = [f"{num_images:,} of {counted(there, 'image')} at {levels} levels, into {config.place}"]
    return _with_forward(facts, config, num_images * levels, config.image_size)


def plan_evaluation(config: EvaluateConfig) -> Planned:
    """Images x levels x networks."""
    levels = 1 + len(config.groups) * len(config.decodes)
    facts = [f"{levels} levels of {config.dataset.name}, into {config.place}"]
    if config.split == ALL:
        facts.append("images are read from their files, and no records are made")
        num_images = num_in_files(config.dataset, None)
    else:
        index = index_of(config.dataset, config.records, config.split, "baseline")
        facts += [] if index else ["records are not made yet"]
        num_images = index.num_samples if index else num_in_files(config.dataset, [config.split])
    if config.runs:
        folders = counted(len(config.runs), "folder")
        return Planned([*facts, f"{counted(num_images, 'image')}, runs of {folders}", NOT_KNOWN])
    facts.append(counted(num_images, "image"))
    return _with_forward(facts, config, num_images * levels, config.image_size or IMAGE_SIZE)


def _with_forward(
    facts: Sequence[str], config: ToleranceConfig | EvaluateConfig, num: int, image_size: int
) -> Planned:
    """The seconds of so many forward passes; decoding comes on top."""
    try:
        seconds = forward_seconds(config.model, image_size) * num
    except PcrExpError as error:
        return Planned([*facts, f"{NOT_KNOWN}: {error}"])
    return Planned([*facts, f"forward passes alone, {WORDS}"], {"seconds": seconds})


def plan_throughput(config: ThroughputConfig) -> Planned:
    """Loaders x limits x repeats; a cluster's plan measures nothing."""
    if config.plan is not None:
        return Planned([f"predicts for {config.plan.name}, measures nothing"])
    if not config.measure:
        return Planned([f"draws what {config.out} holds"])
    num_images = num_in_files(config.dataset, ["train"])
    limits = sum(map(len, (config.bandwidths_mib_per_s, config.latencies_ms, config.requests_per_s)))
    loaders = len(config.scans) + len(config.peers)
    each = config.repeats * (loaders * 2 + (len(config.scans) + 1) * limits)
    facts = [f"{loaders} loaders, {limits} limits, {config.repeats} repeats, into {config.out}"]
    facts.append(counted(num_images, "image"))
    facts.append("at least, for a measurement is at least one epoch; formats are built first")
    return Planned(facts, {"seconds": each * config.measure_s})


def plan_demo(config: DemoConfig) -> Planned:
    """Its grid of trainings."""
    num_runs = len(config.labels) * len(config.scans)
    return Planned([f"{num_runs} trainings on the embedded photographs, into {config.out}", NOT_KNOWN])


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
    """The index of a split's records; None where a local folder has none yet, that would be made.

    Raises:
        PcrExpError: they cannot be opened, or `records.auto_prepare=false` and there are none.
    """
    folder = records_folder(dataset, records)
    made_here = "://" not in records.root and records.auto_prepare
    if made_here and not is_finished(Path(records.root, folder)):
        return None
    return read_index(open_root(records), f"{folder}/{split}/{encoding}")


def num_in_files(dataset: DatasetConfig, splits: Sequence[str] | None = SPLITS) -> int:
    """The images of some splits by the files of the dataset; None: of all files, with or without splits.

    Of the embedded photographs, which opening would make, by their settings.

    Raises:
        PcrExpError: the dataset is not there, or not as its publisher lays it out.
    """
    if isinstance(dataset, PhotosConfig):
        num_train = min(dataset.num_train, dataset.max_train_images or dataset.num_train)
        numbers = {"train": num_train, "tune": 0, "val": dataset.num_val}
        return sum(numbers[split] for split in splits or SPLITS)
    if splits is None:
        return len(open_images(dataset).samples)
    opened = open_dataset(dataset)
    return sum(len(opened.splits[split]) for split in splits)


def _status(config: TrainConfig) -> tuple[str, str]:
    from pcr_exp.runs.data import images_key_of
    from pcr_exp.runs.directory import RunDirectory
    from pcr_exp.runs.identity import run_id

    try:
        path = Path(config.runs_root) / run_id(config, images_key_of(config))
    except PcrExpError:
        return "new", ""
    return RunDirectory(path).status, str(path)


def _storage_s(storage: StorageConfig, num_bytes: float) -> float:
    limit = storage.bandwidth_mib_per_s
    return 0.0 if limit is None else num_bytes / (limit * MIB)


def _until(stop_s: float, amounts: dict[str, float]) -> dict[str, float]:
    """What changes where training stops after so many seconds: it reads a share of the bytes."""
    share = min(1.0, stop_s / amounts["seconds"]) if amounts.get("seconds") else 1.0
    read = {"read_bytes": amounts["read_bytes"] * share} if "read_bytes" in amounts else {}
    return {"seconds": min(stop_s, amounts.get("seconds", stop_s)), **read}


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
