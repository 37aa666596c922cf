"""A run's data: training records through its configured storage, evaluation records at full speed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcr_exp.config.check import require
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.mixture import MixtureConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.sample import SPLITS
from pcr_exp.errors import ConfigError
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.mixed_records import MixedRecords
from pcr_exp.loading.mixture import Mixture
from pcr_exp.loading.transform import eval_transform, train_transform
from pcr_exp.policies.policy import PolicyInputs, ScanPolicy, StaticScan, open_policy
from pcr_exp.records.dataset_facts import DatasetFacts, measure_facts
from pcr_exp.records.fingerprint import joint_images_key
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.index_table import read_index
from pcr_exp.records.prepare import ensure_records, records_folder
from pcr_exp.records.presence import require_files
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.mixture import (
    files_of,
    in_full,
    mixture_images_key,
    mixture_of,
    open_mixed,
    open_mixed_policy,
)
from pcr_exp.storage.cache import CachedStorage, open_cache
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.open import open_root, throttled
from pcr_exp.storage.protocol import Storage
from pcr_exp.system import MIB
from pcr_exp.system.keys import key_of
from pcr_exp.system.machine import drop, resident_share_of
from pcr_exp.system.progress import counting_bar
from pcr_exp.training.distributed.processes import Processes


@dataclass(frozen=True, slots=True)
class RunData:
    """The opened records of all splits."""

    train: RecordSet
    tune: RecordSet
    """Images for scan policies and tuning; may be empty."""
    val: RecordSet
    """Images that results are reported on."""


def prepare_data(config: TrainConfig, *, progress: bool) -> None:
    """Make missing records (with `records.auto_prepare`) and check for changed images.

    Records at a remote root and those of a mixture's sources are used as they are.

    Args:
        config: The whole configuration.
        progress: Show a bar on stderr.

    Raises:
        PcrExpError: records cannot be made, or images were added, removed or replaced since they were made.
    """
    if isinstance(config.dataset, MixtureConfig):
        return
    with counting_bar("records", shown=progress) as tell:
        ensure_records(config.dataset, config.records, progress=tell)


def open_data(config: TrainConfig, *, bucket: Path | None = None, plain: bool = False) -> RunData:
    """Open the records, which `prepare_data` has made.

    Args:
        config: The whole configuration.
        bucket: State file of a storage throttle that other processes share.
        plain: Open the training records without a throttle, for inspection instead of training.

    Raises:
        ConfigError: the records have no such label.
        PcrExpError: records are missing or damaged.
    """
    train = _open_train(config, None if plain else config.storage, bucket)
    tune, val = (
        open_unthrottled(config.dataset, config.records, split, "baseline") for split in ("tune", "val")
    )
    if not isinstance(config.dataset, MixtureConfig):
        _check_label(config, train.index)
    return RunData(train, tune, val)


def _open_train(config: TrainConfig, limits: StorageConfig | None, bucket: Path | None) -> RecordSet:
    records, encoding = config.records, config.scan.encoding
    if isinstance(config.dataset, MixtureConfig):

        def limited(storage: Storage) -> Storage:
            return CountingStorage(storage if limits is None else throttled(storage, limits, bucket))

        return open_mixed(config.dataset, records, "train", encoding, limited)
    storage = CountingStorage(open_root(records, limits, bucket=bucket))
    folder = f"{records_folder(config.dataset, records)}/train/{encoding}"
    train = RecordSet(storage, folder, max_pixels=records.max_pixels)
    require_files(train, open_root(records))  # checks are not part of training and not throttled
    return train


def with_cache(config: TrainConfig, data: RunData, policy: ScanPolicy) -> RunData:
    """Return data that reads the training records through the cache named by `storage.cache`, if any.

    The cache keeps what is read, or only what the policy has planned for it (`scan=cached`).

    Raises:
        ConfigError: the cache is smaller than the plan requires.
        StorageError: the cache cannot be opened.
    """
    place, mib, train = config.storage.cache, config.storage.cache_mib, data.train
    if place is None:
        return data
    keep = None
    if policy.kept_bytes is not None:
        planned = sum(policy.kept_bytes.values()) / MIB
        wanted = f"{planned:.1f} or more, the size that scan.cache_mib plans"
        require(planned <= mib, "storage.cache_mib", mib, wanted)
        keep = {train.path(record): num_bytes for record, num_bytes in policy.kept_bytes.items()}
    # Records encoded from other files have another fingerprint; appending to records keeps it.
    key = key_of({"root": config.records.root, "fingerprint": train.index.fingerprint})
    cached = CachedStorage(train.storage, open_cache(place, round(mib * MIB), key), keep)
    return replace(
        data, train=RecordSet(cached, train.folder, max_pixels=train.max_pixels, index=train.index)
    )


def open_unthrottled(dataset: DatasetConfig, records: RecordsConfig, split: str, encoding: str) -> RecordSet:
    """Open the records of a split; `dataset` limits the number of images of `tune` and `val`.

    Raises:
        PcrExpError: records are missing or damaged.
    """
    if isinstance(dataset, MixtureConfig):
        return open_mixed(dataset, records, split, encoding)
    folder = records_folder(dataset, records)
    limit = {"tune": dataset.max_tune_images, "val": dataset.max_val_images}.get(split)
    storage = open_root(records)
    found = RecordSet(storage, f"{folder}/{split}/{encoding}", limit, max_pixels=records.max_pixels)
    require_files(found)
    return found


def images_key_of(config: TrainConfig) -> str:
    """Return a key of the images of all splits, wherever they lie: 16 hex digits, 8 for a mixture.

    Raises:
        ConfigError: the records have no such label.
        RecordError: there are no records, or their index is invalid.
    """
    if isinstance(config.dataset, MixtureConfig):
        return mixture_images_key(config.dataset, config.records)
    folder = records_folder(config.dataset, config.records)
    storage = open_root(config.records)
    indexes = {split: read_index(storage, f"{folder}/{split}/baseline") for split in SPLITS}
    _check_label(config, indexes["train"])
    return joint_images_key(indexes)


def dataset_facts(
    dataset: DatasetConfig, records: RecordsConfig, encoding: str = "baseline"
) -> DatasetFacts | None:
    """Return facts about a dataset's images over all splits, from its records; None for a mixture.

    Args:
        dataset: The dataset, and the label whose classes are counted.
        records: Location of the records.
        encoding: Encoding of the training images.

    Raises:
        PcrExpError: records are missing or damaged.
    """
    if isinstance(dataset, MixtureConfig):
        return None
    folder, storage = records_folder(dataset, records), open_root(records)
    encodings = {split: encoding if split == "train" else "baseline" for split in SPLITS}
    splits = (
        RecordSet(storage, f"{folder}/{split}/{stored}", max_pixels=records.max_pixels)
        for split, stored in encodings.items()
    )
    return measure_facts(splits, dataset.label)


def _check_label(config: TrainConfig, index: RecordIndex) -> None:
    label = config.dataset.label
    if label not in index.classes:
        choices = ", ".join(sorted(index.classes))
        where = f"{config.records.root}/{records_folder(config.dataset, config.records)}"
        raise ConfigError(f"dataset.label={label!r}: the records in {where} have the labels {choices}.")


def class_counts(records: RecordSet, label: str) -> NDArray[np.int64]:
    """Return the number of images of each class in a split, [classes]; reads only record headers.

    Raises:
        PcrExpError: a record cannot be read, or is damaged.
    """
    counts = np.zeros(len(records.index.classes[label]), dtype=np.int64)
    for _, labels in ids_and_labels(records, label):
        counts += np.bincount(labels, minlength=len(counts))
    return counts


def ids_and_labels(records: RecordSet, label: str) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
    """Yield the ids and class indexes [N] of each record's images; reads only record headers.

    The ids of a mixture's images begin with the name of their source.

    Raises:
        PcrExpError: a record cannot be read, or is damaged.
    """
    if isinstance(records, MixedRecords):
        for name, source in records.sources.items():
            for ids, labels in ids_and_labels(source.records, source.label):
                yield [f"{name}/{id_}" for id_ in ids], records.merged(name, labels)
        return
    for number, kept in enumerate(records.index.records):
        entry = records.stored(number)
        data = records.read_range(number, 0, entry.header_bytes)
        header, _ = records.unpack_header(data, entry, f"record {records.path(number)}")
        labels = np.array(header.labels[label][: kept.num_samples], dtype=np.int64)
        yield header.ids[: kept.num_samples], labels


def open_run_policy(config: TrainConfig, data: RunData, run: PolicyInputs) -> ScanPolicy:
    """Return the policy for reading training records. Raises as `open_policy` and `open_mixed_policy` do."""
    if isinstance(config.dataset, MixtureConfig):
        assert isinstance(data.train, MixedRecords)
        return open_mixed_policy(config.dataset, config.scan, data.train, run)
    return open_policy(config.scan, run)


def epoch_mixture(config: TrainConfig, data: RunData) -> Mixture | None:
    """Return the images that a mixture's epochs use; None for one dataset, which uses every image."""
    if not isinstance(config.dataset, MixtureConfig):
        return None
    assert isinstance(data.train, MixedRecords)
    return mixture_of(config.dataset, data.train, config.num_slots)


def training_loader(
    config: TrainConfig, data: RunData, policy: ScanPolicy, processes: Processes
) -> RecordLoader:
    """Return the loader of augmented, shuffled batches for this process's share of an epoch."""
    return RecordLoader(
        data.train,
        policy,
        config.loader,
        transform=train_transform(config.crops),
        label=config.dataset.label,
        batch_size=config.training.batch_size,
        seed=config.seed,
        shuffle=True,
        storage_config=config.storage,
        echo=config.echo,
        rank=processes.rank,
        world_size=processes.world_size,
        global_batch_size=config.training.global_batch_size,
        selection=epoch_mixture(config, data),
    )


def full_training_loader(config: TrainConfig, data: RunData) -> RecordLoader:
    """Return an unthrottled loader of augmented training images with all scans, for all shares together.

    Raises:
        PcrExpError: a record is missing or damaged.
    """
    records = open_unthrottled(config.dataset, config.records, "train", data.train.index.encoding)
    return RecordLoader(
        records,
        in_full(records) if isinstance(records, MixedRecords) else StaticScan(records.index.num_groups),
        config.loader,
        transform=train_transform(config.crops),
        label=config.dataset.label,
        batch_size=config.training.batch_size,
        seed=config.seed,
        shuffle=True,
        selection=epoch_mixture(config, replace(data, train=records)),
    )


def validation_loader(
    config: TrainConfig, data: RunData, split: str = "val", group: int | None = None
) -> RecordLoader:
    """Return an unthrottled loader of the images of `val` or `tune`.

    It reads the original JPEG bytes; with `group` it reads progressive records up to that scan group, as for
    training images.

    Raises:
        ConfigError: the split has no images.
        PcrExpError: there are no progressive records of the split, or they are damaged.
    """
    records: RecordSet = (
        getattr(data, split)
        if group is None
        else open_unthrottled(config.dataset, config.records, split, "pcr")
    )
    if not records.index.num_samples:
        raise ConfigError(
            f"the {split} split of {records.index.dataset} has no images to evaluate. Hold some out "
            f"(dataset.tune_fraction={config.dataset.tune_fraction:g}), or add images."
        )
    return RecordLoader(
        records,
        StaticScan(group or 1),
        config.loader,
        transform=eval_transform(config.crops),
        label=config.dataset.label,
        batch_size=config.training.batch_size,
        seed=config.seed,
        shuffle=False,
        storage_config=StorageConfig(name="unlimited", reads_in_flight=config.storage.reads_in_flight),
    )


log = logging.getLogger(__name__)


def settle_page_cache(config: TrainConfig, data: RunData) -> float | None:
    """Drop the training records from the page cache if `storage.cold_cache` is set; log the cached share.

    Returns:
        The share (0 to 1) of the records' bytes in the page cache afterwards; None if it is unknown.
    """
    files = _record_files(config, data.train)
    if config.storage.cold_cache:
        _drop(files, config.records.root)
    cached = resident_share_of(files) if files else None
    log.info("page cache: %s of the training records", "unknown share" if cached is None else f"{cached:.0%}")
    return cached


@contextmanager
def page_cache_restored(config: TrainConfig, records: RecordSet, num_images: int) -> Iterator[None]:
    """After the block, drop record files of the first `num_images` that were not cached before it."""
    files = []
    for path, record in zip(_record_files(config, records), records.index.records, strict=False):
        if num_images > 0:
            files.append(path)
        num_images -= record.num_samples
    cold = [path for path in files if resident_share_of([path]) == 0]
    try:
        yield
    finally:
        drop(cold)


def _record_files(config: TrainConfig, records: RecordSet) -> list[Path]:
    """Return the record files; none for remote records, whose page cache is out of reach."""
    if isinstance(config.dataset, MixtureConfig):
        return files_of(config.dataset, records) if isinstance(records, MixedRecords) else []
    if "://" in config.records.root:
        return []
    folder = Path(config.records.root) / records.folder
    return [folder / record.file for record in records.index.records]


def _drop(files: list[Path], root: str) -> None:
    if not files:
        log.warning(
            "storage.cold_cache=true: nothing was dropped, because records.root=%s is not a local folder",
            root,
        )
        return
    kept = drop(files)
    log.info("storage.cold_cache=true: %d of %d record files dropped", len(files) - len(kept), len(files))
    if kept:
        path, reason = next(iter(kept.items()))
        log.warning(
            "storage.cold_cache=true: %d files could not be dropped, such as %s: %s", len(kept), path, reason
        )
