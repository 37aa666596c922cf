"""The records of `dataset=mixture`, their order, and the scan groups that they are read at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pcr_exp.config.check import require
from pcr_exp.config.mixture import MixtureConfig, require_sources
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.datasets.sample import SPLITS
from pcr_exp.errors import ConfigError
from pcr_exp.loading.mixed_records import LabelledRecords, MixedPolicy, MixedRecords, require_one_codec
from pcr_exp.loading.mixture import MixedSource, Mixture, epoch_size, exact_share, source_counts
from pcr_exp.policies.policy import PolicyInputs, ScanPolicy, StaticScan, open_policy
from pcr_exp.records.fingerprint import joint_images_key
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.index_table import read_index
from pcr_exp.records.presence import require_files
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.open import open_root
from pcr_exp.storage.protocol import Joined, Storage
from pcr_exp.system.keys import key_of


def open_sources(mixture: MixtureConfig, records: RecordsConfig) -> Joined:
    """Open the storage of all sources as one.

    Raises:
        ConfigError: there are fewer than two sources.
        StorageError: an address cannot be opened.
    """
    require_sources(mixture.sources)
    return Joined(
        {name: open_root(replace(records, root=source.root)) for name, source in mixture.sources.items()}
    )


def open_mixed(
    mixture: MixtureConfig,
    records: RecordsConfig,
    split: str,
    encoding: str,
    limited: Callable[[Storage], Storage] = lambda storage: storage,
) -> MixedRecords:
    """Open a split of all sources; `mixture` limits the images per source of `tune` and `val`.

    Args:
        mixture: The sources.
        records: How their storage is read.
        split: One of SPLITS.
        encoding: `pcr` or `baseline`.
        limited: Applies the storage's limits.

    Raises:
        ConfigError: a source has no such label, no training images, or another image codec than the others.
        PcrExpError: records are missing or damaged.
    """
    joined = open_sources(mixture, records)
    storage = limited(joined)
    limit = {"tune": mixture.max_tune_images, "val": mixture.max_val_images}.get(split)
    sources = {}
    for name in mixture.sources:
        folder = f"{name}/{split}/{encoding}"
        found = RecordSet(storage, folder, limit, max_pixels=records.max_pixels)
        require_files(found, joined)
        sources[name] = LabelledRecords(found, _label(mixture, name, found.index))
        has_images = split != "train" or found.index.num_samples > 0
        root = mixture.sources[name].root
        require(has_images, f"dataset.sources.{name}.root", root, "records with training images")
    require_one_codec({name: source.records for name, source in sources.items()})
    return MixedRecords(sources, merges=True)


def _label(mixture: MixtureConfig, name: str, index: RecordIndex) -> str:
    source, labels = mixture.sources[name], sorted(index.classes)
    if source.label is None and len(labels) == 1:
        return labels[0]
    wanted = f"one of {', '.join(labels)}, the labels that the records in {source.root} have"
    require(source.label in labels, f"dataset.sources.{name}.label", source.label, wanted)
    return str(source.label)


def mixture_of(mixture: MixtureConfig, train: MixedRecords, num_slots: int) -> Mixture:
    """Return the images of an epoch, equally many for each micro-batch of a global batch.

    Raises:
        ConfigError: an epoch has no image of a source.
    """
    shares = {name: exact_share(source.share) for name, source in mixture.sources.items()}
    indexes = {name: source.records.index for name, source in train.sources.items()}
    epoch = int(mixture.epoch) if mixture.epoch.isdecimal() else mixture.epoch
    size = epoch_size(epoch, [index.num_samples for index in indexes.values()], list(shares.values()))
    counts = source_counts(shares, size, num_slots)
    starts = zip(indexes, train.numbering.starts, strict=True)
    return Mixture(
        {name: MixedSource(start, indexes[name].sizes.tolist(), counts[name]) for name, start in starts}
    )


def epoch_bytes(mixture: MixtureConfig, train: MixedRecords, num_slots: int, group: int) -> float:
    """Return the bytes of an epoch's images; sources without their own group are read at `group`."""
    counts = dict(mixture_of(mixture, train, num_slots).identity["mixture"])
    total = 0.0
    for name, source in mixture.sources.items():
        index = train.sources[name].records.index
        total += counts[name] * index.mean_prefix_bytes(min(source.group or group, index.num_groups))
    return total


def open_mixed_policy(
    mixture: MixtureConfig, scan: ScanConfig, train: MixedRecords, run: PolicyInputs
) -> ScanPolicy:
    """Return a policy that reads each source at its own group or, without one, by the policy of `scan`.

    Raises:
        ConfigError: the policy depends on training.
        RecordError: a source's records lack a group.
    """
    policies: dict[str, ScanPolicy] = {}
    for name, source in mixture.sources.items():
        index = train.sources[name].records.index
        own = replace(run, index=index)
        policies[name] = open_policy(scan, own) if source.group is None else StaticScan(source.group)
        if not policies[name].by_epoch:
            raise ConfigError(
                f"scan={scan.name} with dataset=mixture: wanted a scan group, scan=schedule or scan=mixture. "
                "A policy that follows training cannot tell sources apart."
            )
        for group in policies[name].candidates:
            index.check_group(group)
    return MixedPolicy(policies, train.numbering)


def in_full(train: MixedRecords) -> ScanPolicy:
    """Return a policy that reads each source at all its scan groups."""
    full = {name: StaticScan(source.records.index.num_groups) for name, source in train.sources.items()}
    return MixedPolicy(full, train.numbering)


def mixture_images_key(mixture: MixtureConfig, records: RecordsConfig) -> str:
    """Return a key of eight hex digits for the images of all sources, wherever they lie.

    Raises:
        RecordError: there are no records.
    """
    storage = open_sources(mixture, records)
    keys = []
    for name in mixture.sources:
        indexes = {split: read_index(storage, f"{name}/{split}/baseline") for split in SPLITS}
        _label(mixture, name, indexes["train"])
        keys.append([name, joint_images_key(indexes)])
    return key_of({"mixture": keys})


def files_of(mixture: MixtureConfig, train: MixedRecords) -> list[Path]:
    """Return the record files of local sources."""
    return [
        Path(mixture.sources[name].root, source.records.path(record).partition("/")[2])
        for name, source in train.sources.items()
        if "://" not in mixture.sources[name].root
        for record in range(len(source.records.index.records))
    ]
