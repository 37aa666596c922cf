"""`--dry-run`: what a command would run, read, take and leave on disk. Nothing is run or written for it.

It opens records, or else the dataset, and counts; it times a second of this machine, or says that seconds are
not known. What the command itself would refuse, such as a folder that is not there, is an error here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pcr_exp.cli.jobs import describe_amounts
from pcr_exp.cli.timed import WORDS, forward_seconds
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.mixture import MixtureConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.training import ModelConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.datasets.sample import SPLITS, open_dataset, open_images
from pcr_exp.errors import PcrExpError
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.index_table import read_index
from pcr_exp.records.prepare import is_finished, records_folder
from pcr_exp.runs.mixture import open_mixed
from pcr_exp.storage.open import open_root

WOULD_RUN = "would run"
NOT_KNOWN = "seconds are not known"


@dataclass(frozen=True, slots=True)
class Planned:
    """A job that has not run."""

    facts: list[str]
    """The work in words."""
    amounts: dict[str, float] = field(default_factory=dict)
    """`seconds`, `read_bytes` and `disk_bytes`, as far as they are known (`jobs.AMOUNTS`)."""
    status: str = WOULD_RUN

    @property
    def words(self) -> str:
        """All of it in one line."""
        return "; ".join([*self.facts, *([describe_amounts(self.amounts)] if self.amounts else [])])


def index_of(dataset: DatasetConfig, records: RecordsConfig, split: str, encoding: str) -> RecordIndex | None:
    """The index of a split's records; None where a local folder has none yet, that would be made.

    Raises:
        PcrExpError: they cannot be opened, or `records.auto_prepare=false` and there are none.
    """
    if isinstance(dataset, MixtureConfig):
        return open_mixed(dataset, records, split, encoding).index
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


def plan_forward(facts: Sequence[str], model: ModelConfig, num_passes: int, image_size: int) -> Planned:
    """The seconds of so many forward passes of an image; decoding comes on top."""
    try:
        seconds = forward_seconds(model, image_size) * num_passes
    except PcrExpError as error:
        return Planned([*facts, f"{NOT_KNOWN}: {error}"])
    return Planned([*facts, f"forward passes alone, {WORDS}"], {"seconds": seconds})
