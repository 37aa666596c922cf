"""`--dry-run`: report what a command would run, read, take and leave on disk, without doing any of it.

It counts images in the records, or else in the dataset. It times this machine for a second, or reports that
seconds are not known. Decoding, evaluation and waiting are not timed, so these times are lower bounds.
Whatever the command itself would reject, such as a missing folder, is an error here, too.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pcr_exp.cli.jobs import describe_amounts
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.mixture import MixtureConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.training import ModelConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.datasets.sample import SPLITS, Sample, open_dataset, open_images
from pcr_exp.errors import ImageError, PcrExpError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.index_table import read_index
from pcr_exp.records.prepare import is_finished, records_folder
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.mixture import open_mixed
from pcr_exp.storage.open import open_root

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from pcr_exp.training.trainer import Trainer


WOULD_RUN = "would run"
NOT_KNOWN = "seconds are not known"


@dataclass(frozen=True, slots=True)
class Planned:
    """Plan of a job that has not run."""

    facts: list[str]
    """The work in words."""
    amounts: dict[str, float] = field(default_factory=dict)
    """`seconds`, `read_bytes` and `disk_bytes`, each if known (`jobs.AMOUNTS`)."""
    status: str = WOULD_RUN

    @property
    def words(self) -> str:
        """The whole plan in one line."""
        return "; ".join([*self.facts, *([describe_amounts(self.amounts)] if self.amounts else [])])


def index_of(dataset: DatasetConfig, records: RecordsConfig, split: str, encoding: str) -> RecordIndex | None:
    """Return the index of a split's records; None if a local folder lacks them and they would be made.

    Raises:
        PcrExpError: they cannot be opened, or there are none and `records.auto_prepare=false`.
    """
    if isinstance(dataset, MixtureConfig):
        return open_mixed(dataset, records, split, encoding).index
    folder = records_folder(dataset, records)
    made_here = "://" not in records.root and records.auto_prepare
    if made_here and not is_finished(Path(records.root, folder)):
        return None
    return read_index(open_root(records), f"{folder}/{split}/{encoding}")


def num_in_files(dataset: DatasetConfig, splits: Sequence[str] | None = SPLITS) -> int:
    """Count the images of some splits in the dataset's files; None counts all files, even without splits.

    The embedded photographs, which opening would create, are counted from their settings.

    Raises:
        PcrExpError: the dataset is missing, or not laid out as published.
    """
    if isinstance(dataset, PhotosConfig):
        num_train = min(dataset.num_train, dataset.max_train_images or dataset.num_train)
        numbers = {"train": num_train, "tune": 0, "val": dataset.num_val}
        return sum(numbers[split] for split in splits or SPLITS)
    if splits is None:
        return len(open_images(dataset).samples)
    opened = open_dataset(dataset)
    return sum(len(opened.splits[split]) for split in splits)


def plan_forward(facts: Sequence[str], model: ModelConfig, num_passes: int, image_size: int) -> Planned:
    """Plan `num_passes` forward passes of one image, timed on this machine; decoding comes on top."""
    try:
        seconds = forward_seconds(model, image_size) * num_passes
    except PcrExpError as error:
        return Planned([*facts, f"{NOT_KNOWN}: {error}"])
    return Planned([*facts, f"forward passes alone, {WORDS}"], {"seconds": seconds})


TIMED_S = 1.0
WORDS = "timed for a second on this machine"
_FEW = 8
"""Images of a timed batch on a CPU: a larger one takes as long per image."""
NUM_CLASSES = 100
"""Number of classes of the models whose updates are timed."""


def seconds_each(work: Callable[[], int]) -> float:
    """Measure the seconds per item over a second of work, after a first call that does not count.

    Args:
        work: Processes some items and returns how many.
    """
    work()
    num, began_s = 0, time.perf_counter()
    while num == 0 or time.perf_counter() - began_s < TIMED_S:
        num += work()
    return (time.perf_counter() - began_s) / num


def update_seconds(config: TrainConfig) -> float:
    """Measure the seconds per image of updates of this model on random pixels, without loading weights.

    Raises:
        PcrExpError: there is no such model or device, or the model cannot process such a batch.
    """
    from pcr_exp.training.clocks import open_device, synchronizer
    from pcr_exp.training.models import check_model

    device = open_device(config.training.device)
    blank = replace(config.model, pretrained=False, weights=None)
    trainer = open_trainer(replace(config, model=blank), device)
    size = config.training.batch_size if device.type == "cuda" else min(config.training.batch_size, _FEW)
    px = config.training.image_size
    check_model(trainer.model, config.model.name, train_batches=[(size, px)], eval_batches=[])
    images, labels = random_batch(size, px)
    finish, steps = synchronizer(device), itertools.count()

    def update() -> int:
        trainer.update(images, labels, step=next(steps), learning_rate=0.0)
        finish()
        return size

    return seconds_each(update)


def open_trainer(config: TrainConfig, device: torch.device) -> Trainer:
    """Return a new model of NUM_CLASSES classes with its optimizer, as a run of this configuration has it."""
    import torch

    from pcr_exp.training.inputs import normalization_of
    from pcr_exp.training.models import open_model
    from pcr_exp.training.trainer import Trainer

    torch.manual_seed(config.seed)
    return Trainer(
        open_model(config.model, NUM_CLASSES),
        config.training,
        device=device,
        seed=config.seed,
        activations=config.activations,
        normalization=normalization_of(config.model),
    )


def random_batch(batch_size: int, image_size: int) -> tuple[Tensor, Tensor]:
    """Return images, uint8 [B, px, px, 3], and labels, int64 [B], from a fixed seed, on the CPU."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = (batch_size, image_size, image_size, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, NUM_CLASSES, (batch_size,), generator=generator)


def forward_seconds(config: ModelConfig, image_size: int) -> float:
    """Measure seconds per image of a forward pass, without loading weights. Raises as `update_seconds`."""
    import torch

    from pcr_exp.training.clocks import open_device, synchronizer
    from pcr_exp.training.models import open_model

    device = open_device("auto")
    model = open_model(replace(config, pretrained=False, weights=None), 1000).eval().to(device)
    images, finish = torch.zeros(_FEW, 3, image_size, image_size, device=device), synchronizer(device)

    def forward() -> int:
        with torch.inference_mode():
            model(images)
        finish()
        return len(images)

    return seconds_each(forward)


def encode_seconds(samples: Sequence[Sample], codec: ImageCodec, max_pixels: int) -> float:
    """Measure the seconds per image to encode files and split them in one thread, ignoring bad images.

    Raises:
        RecordError: a library needed for encoding is not installed.
    """
    codec.check_installed()
    files = itertools.cycle(samples)

    def encode() -> int:
        original = next(files).file.read_bytes()
        try:
            codec.check(original, max_pixels)
            codec.split(codec.encode(original, max_pixels))
        except ImageError:
            pass
        return 1

    return seconds_each(encode)


def quality_seconds(records: RecordSet, groups: Sequence[int]) -> float:
    """Measure the seconds per image of one thread at these groups, on the middle image of the split."""
    from pcr_exp.measuring.quality import measure_quality

    return seconds_each(lambda: measure_quality(records, groups, 1)["id"].nunique())
