"""Train on several datasets together: `mix`, and the loader of its result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcr_exp.api.dataset import RecordDataset
from pcr_exp.api.loader import DatasetLoader, named_as_arguments
from pcr_exp.api.scan import Scan, plain, policy_of_scan
from pcr_exp.config.check import require
from pcr_exp.config.mixture import EPOCHS, LABEL
from pcr_exp.errors import ConfigError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.mixed_records import (
    LabelledRecords,
    MixedPolicy,
    MixedRecords,
    require_one_codec,
)
from pcr_exp.loading.mixture import Mixture, epoch_size, exact_share, source_counts
from pcr_exp.loading.order import open_share
from pcr_exp.policies.policy import PolicyInputs, ScanPolicy
from pcr_exp.records.reader import RecordSet


def mix(
    sources: Mapping[str, tuple[RecordDataset, float]], *, seed: int = 0, epoch: str | int = "largest"
) -> MixedDataset:
    """Combine datasets for one training, each with its share of the images and its own scan.

    Args:
        sources: A dataset (or a selection of one) and its share, by name; shares are divided by their sum.
        seed: Seed of orders and transforms.
        epoch: Images of an epoch: a number, or `largest` (enough to use every source in full at least once)
            or `smallest` (no source is used more than once).

    Raises:
        ConfigError: there are fewer than two sources, an invalid share or epoch, or sources that do not fit.
    """
    require(
        len(sources) >= 2,
        "sources",
        list(sources),
        "at least two, by name; for one dataset, use its own loader",
    )
    for name, given in sources.items():
        is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], RecordDataset)
        require(is_pair, f"sources[{name!r}]", given, "a pair of a dataset (pcr_exp.open) and its share")
        share = given[1]
        is_share = isinstance(share, int | float) and math.isfinite(share) and share > 0
        require(is_share, "shares", {name: share}, "numbers above 0; leave out unused sources")
        require(len(given[0]) > 0, f"sources[{name!r}]", "a dataset without images", "at least one image")
        fields = list(given[0].fields.kinds) if given[0].fields is not None else []
        require(not fields, f"sources[{name!r}]", fields, "no fields: mixtures do not support them")
    datasets = {name: dataset for name, (dataset, _) in sources.items()}
    _require_alike(datasets)
    shares = {name: exact_share(share) for name, (_, share) in sources.items()}
    is_number = isinstance(epoch, int) and not isinstance(epoch, bool) and epoch >= 1
    require(is_number or epoch in EPOCHS, "epoch", epoch, "largest, smallest, or a number of images above 0")
    num_images = epoch_size(epoch, [len(one) for one in datasets.values()], list(shares.values()))
    return MixedDataset(datasets, shares, num_images, seed)


@dataclass(frozen=True, slots=True)
class SourceCount:
    """Images and bytes that a loader has used of a source so far."""

    num_images: int
    """Images in the batches yielded so far."""
    read_bytes: int
    """Bytes of the record prefixes read so far, including those read ahead."""


class MixedDataset:
    """Result of `mix`. Its length is the number of images of an epoch; `.loader(...)` returns its loader."""

    def __init__(
        self,
        datasets: Mapping[str, RecordDataset],
        shares: Mapping[str, Fraction],
        num_images: int,
        seed: int,
    ) -> None:
        """See `mix`."""
        self.datasets = dict(datasets)
        self.seed = seed
        self._shares = dict(shares)
        self._num_images = num_images
        self.classes, self.label_values = _labels(self.datasets)
        self.counts()  # raises if a source has no image in an epoch

    def __len__(self) -> int:
        return self._num_images

    def counts(self, multiple_of: int = 1) -> dict[str, int]:
        """Return the images of an epoch by source; their total is rounded down to a multiple.

        Raises:
            ConfigError: none is left, or a source's share is less than one image.
        """
        return source_counts(self._shares, self._num_images, multiple_of)

    def loader(self, batch_size: int, **settings: Any) -> MixtureLoader:
        """Return a loader of all sources, always shuffled. Settings and errors are those of `DatasetLoader`.

        The images of an epoch are rounded down to a number that processes share equally, and to whole batches
        with `drop_last`. `lanes` is the number for each source. `transform`, `images_as` and `decode` default
        to the datasets' values, which must then agree.
        """
        given: dict[str, Any] = {"seed": self.seed}
        for key in sorted({"transform", "images_as", "decode"} - settings.keys()):
            values = {name: getattr(dataset, key) for name, dataset in self.datasets.items()}
            given[key] = first = next(iter(values.values()))
            alike = all(value is first or value == first for value in values.values())
            require(
                alike, key, values, f"the same for every source, or loader({key}=...), which applies to all"
            )
        return MixtureLoader(self, batch_size=batch_size, **given | settings)


class MixtureLoader(DatasetLoader):
    """Loader of several datasets, like `DatasetLoader` of one. They share one pool of workers and threads.

    In every epoch, each source has the number of images that `MixedDataset.counts` returns.
    """

    @named_as_arguments()
    def __init__(
        self,
        mixture: MixedDataset,
        *,
        batch_size: int,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        global_batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        """See `MixedDataset.loader`."""
        self._datasets = mixture.datasets
        if not settings.pop("shuffle", True):
            raise ConfigError(
                "shuffle=False: wanted True; evaluate on each dataset alone, by its own loader."
            )
        share = open_share(rank, world_size, batch_size=batch_size, global_batch_size=global_batch_size)
        counts = mixture.counts(share.num_slots * (batch_size if drop_last else 1))
        self._mixed = MixedRecords(
            {name: LabelledRecords(one.records, one.label) for name, one in self._datasets.items()}
        )
        starts = dict(zip(self._datasets, self._mixed.numbering.starts, strict=True))
        self._num_images = np.zeros(len(counts), dtype=np.int64)
        super().__init__(
            self._mixed,
            {name: plain(one.scan) for name, one in self._datasets.items()},
            label=LABEL,
            label_values=mixture.label_values,
            batch_size=batch_size,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            global_batch_size=global_batch_size,
            selection=Mixture(
                {name: one.mixed_source(starts[name], counts[name]) for name, one in self._datasets.items()}
            ),
            **settings,
        )

    @property
    def counts(self) -> dict[str, SourceCount]:
        """Images and bytes by source, counted in this process since the loader was made."""
        num_bytes = self._mixed.read_bytes
        return {
            name: SourceCount(int(num), num_bytes[name])
            for name, num in zip(self._datasets, self._num_images, strict=True)
        }

    def _open_policy(self, records: RecordSet, scan: Scan, seed: int) -> ScanPolicy:  # noqa: ARG002
        policies = {}
        for name, one in self._datasets.items():
            inputs = PolicyInputs(seed, self._consensus, one.records.index, one.records.storage.counts)
            policies[name] = policy_of_scan(one.scan, inputs)
        return MixedPolicy(policies, self._mixed.numbering)

    def _labels(self, batch: Batch) -> Tensor:
        # Every yielded batch passes through here exactly once, so it is counted here.
        sources = np.searchsorted(self._mixed.classes.starts, batch.labels.numpy(), side="right") - 1
        self._num_images += np.bincount(sources, minlength=len(self._num_images))
        return super()._labels(batch)


def _require_alike(datasets: Mapping[str, RecordDataset]) -> None:
    """Raise ConfigError unless all policies follow epochs alone, and one codec and `max_pixels` serve all."""
    for name, dataset in datasets.items():
        if not dataset.follows_epochs_itself:
            raise ConfigError(
                f"sources[{name!r}] has scan={dataset.scan!r}: wanted a scan group, a schedule or a "
                "mixture of groups. A policy that follows training cannot tell sources apart: open the "
                "dataset with another scan."
            )
    require_one_codec({name: dataset.records for name, dataset in datasets.items()})
    limits = {name: dataset.records.max_pixels for name, dataset in datasets.items()}
    require(len(set(limits.values())) == 1, "max_pixels", limits, "the same in every pcr_exp.open")


def _labels(datasets: Mapping[str, RecordDataset]) -> tuple[list[str], Tensor]:
    """Return the class names of all sources, and the labels of each source's classes in turn, [N] or [N, K].

    Raises:
        ConfigError: label values are given for some sources only, or differ in shape.
    """
    given = {name: dataset.has_label_values for name, dataset in datasets.items()}
    classes = list(dict.fromkeys(name for dataset in datasets.values() for name in dataset.classes))
    if not any(given.values()):
        number = {name: i for i, name in enumerate(classes)}
        return classes, torch.tensor(
            [number[name] for dataset in datasets.values() for name in dataset.classes]
        )
    require(all(given.values()), "labels", given, "labels in the pcr_exp.open of every source, or of none")
    values = {name: dataset.label_values for name, dataset in datasets.items()}
    shapes = {name: list(value.shape[1:]) for name, value in values.items()}
    alike = all(shape == next(iter(shapes.values())) for shape in shapes.values())
    require(alike, "labels", shapes, "rows of one length for the classes of every source")
    joined = np.concatenate(list(values.values()))
    return classes, torch.from_numpy(joined if joined.dtype == np.int64 else joined.astype(np.float32))
