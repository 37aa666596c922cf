"""A split of records as a map-style PyTorch dataset, with its labels."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple, NoReturn, Self, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, default_collate

from pcr_exp.api.loader import DatasetLoader
from pcr_exp.api.scan import Scan, policy_of_scan
from pcr_exp.config.check import require
from pcr_exp.config.loader import DECODE_MODES
from pcr_exp.errors import ConfigError
from pcr_exp.images.codec import Buffer
from pcr_exp.images.resample import whole_image
from pcr_exp.loading.fields import collate_fields, decode_fields
from pcr_exp.loading.mixture import MixedSource
from pcr_exp.loading.selection import Selection
from pcr_exp.loading.whole_images import WholeImageTransform, random_states_restored
from pcr_exp.policies.consensus import SingleRank
from pcr_exp.policies.policy import PolicyInputs, ScanPolicy
from pcr_exp.records.class_values import multi_hot
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages
from pcr_exp.system import MIB
from pcr_exp.system.randomness import Purpose, stream

Value: TypeAlias = float | Sequence[float]
"""A label value: an integer, a real number, or a row of these."""
Labels: TypeAlias = Mapping[str, Value] | Callable[[str], Value] | Literal["multi_hot"] | None
"""How class names become label values: a mapping or a function from name to value, such as `float`;
`multi_hot`, which turns names that stand for sets into rows of 0 and 1; or None, the class indexes."""


def choose_label(index: RecordIndex, label: str | None) -> str:
    """Return the name of the label to use; if none is given, the only one there is.

    Raises:
        ConfigError: there is no such label, or none is given and there are several.
    """
    names = sorted(index.classes)
    if label is None and len(names) == 1:
        return names[0]
    if label is None or label not in index.classes:
        raise ConfigError(
            f"label={label!r}: wanted one of {', '.join(names)}, the labels that the records of "
            f"{index.dataset}/{index.split} have."
        )
    return label


def label_values(classes: Sequence[str], labels: Labels) -> npt.NDArray[Any]:
    """Return the value of each class: int64 or float32, [number of classes] or [number of classes, K].

    Raises:
        ConfigError: a class has no value or one that is not numeric, or rows differ in length.
    """
    if labels is None:
        return np.arange(len(classes), dtype=np.int64)
    if isinstance(labels, str):
        require(labels == "multi_hot", "labels", labels, "a mapping, a function, multi_hot or None")
        return multi_hot(classes).astype(np.float32)
    get = labels.__getitem__ if isinstance(labels, Mapping) else labels
    values = []
    for name in classes:
        try:
            value = np.asarray(get(name))
            if value.dtype.kind not in "biuf" or value.ndim > 1:
                raise TypeError(f"{value!r}")
            values.append(value)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"labels: class {name!r} has no number ({type(error).__name__}: {error}); wanted one for "
                f"each of the {len(classes)} classes, or a row of several."
            ) from error
    if len({value.shape for value in values}) > 1:
        raise ConfigError("labels: classes have rows of different lengths; wanted one length for all.")
    whole = all(value.dtype.kind in "biu" for value in values)
    return np.array(values, dtype=np.int64 if whole else np.float32)


_TABLES_BYTES, _TABLE_ROW_BYTES = 64 * MIB, 16
"""Bytes of the cache of tables that locate images, and of a row. At least 256 tables are cached."""
_MAX_GAP_BYTES, _MAX_GAP_REMOTE_BYTES = 2**14, 2**19
"""Gaps up to this size are read and discarded: about the bytes that arrive while a request waits."""
_NUM_THREADS = 16
"""Records read concurrently from remote storage."""


class Row(TypedDict):
    """Metadata of an image, passed to the function of `select`."""

    index: int
    id: str
    label: str
    """Name of its class."""
    labels: dict[str, str]
    """Name of its class under every label of the records."""


class _PartialRead(NamedTuple):
    """The requested images of one record."""

    record: int
    group: int
    images: list[tuple[int, int]]
    """(position in the batch, number in the record) of each image."""
    files: list[bytes]
    labels: npt.NDArray[np.int64]
    """[N] class indexes of all the record's images."""
    fields: list[dict[str, Buffer]]
    """The fields of each image; empty if none were requested."""


class RecordDataset(Dataset[tuple[Any, Any]]):
    """Images and labels by index, in record order. Picklable; each process opens its own storage.

    Images are read at the scan group of the epoch given to `set_epoch`. `.loader()` is the fast way through
    all of them: it reads whole record prefixes, whereas indexing reads only the pieces of the given images.
    """

    def __init__(
        self,
        records: RecordSet,
        scan: Scan,
        *,
        label: str | None,
        labels: Labels,
        transform: Callable[..., Any] | None,
        images_as: str,
        decode: str,
        seed: int | None,
        fields: Sequence[str] = (),
    ) -> None:
        """See `pcr_exp.open`."""
        require(decode in DECODE_MODES, "decode", decode, " or ".join(DECODE_MODES))
        self.records = records
        self.scan = scan
        self.label = choose_label(records.index, label)
        self.label_values = label_values(records.index.classes[self.label], labels)
        """Label of each class, [number of classes] or [number of classes, K]; int64 or float32."""
        self.has_label_values = labels is not None
        """Whether label values were given, rather than class indexes."""
        self.transform = transform
        """Called with every image. May be replaced, as timm's `create_loader` does."""
        self.images_as = images_as
        self.decode = decode
        self.seed = seed
        self._policy = policy_of_scan(scan, PolicyInputs(seed or 0, SingleRank(), records.index))
        check = WholeImageTransform(transform, images_as)  # rejects an unknown `images_as`
        self.fields = RecordFields(records, fields) if fields else None
        """The requested fields."""
        if self.fields is not None:
            check.refuse_fields()
        self._ends = np.cumsum(records.index.sizes)
        # In shared memory, so that workers that persist across epochs see it, too.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._reader: tuple[int, SingleImages, ThreadPoolExecutor | None] | None = None
        self._selection: Selection | None = None

    @property
    def classes(self) -> list[str]:
        """The class names."""
        return list(self.records.index.classes[self.label])

    @property
    def targets(self) -> list[Any]:
        """Label of every image, in order, as in torchvision's datasets. Reads every record header."""
        images, _ = self._open()
        every = [images.labels(record)[self.label] for record in range(len(self._ends))]
        if not every:
            return []
        chosen = slice(None) if self._selection is None else self._selection.images
        return self.label_values[np.concatenate(every)[chosen]].tolist()

    def __len__(self) -> int:
        return self.records.index.num_samples if self._selection is None else len(self._selection)

    def select(self, which: Callable[[Row], bool] | Iterable[int]) -> Self:
        """Return a dataset of some of these images, in record order, chosen by a function or by indices.

        Its loader reads whole prefixes of the records that hold any of them. Indexing reads only the images.

        Args:
            which: Distinct indices, or a function called with each image's row: `index`, `id`, `label` (name
                of its class) and `labels` (the class under every label). A function reads every header.

        Raises:
            ConfigError: an index is out of range or repeated, or no image is left.
            RecordError, StorageError: a header could not be read.
        """
        if callable(which):
            chosen = np.array([row["index"] for row in self._rows() if which(row)], dtype=np.int64)
        else:
            chosen = np.sort(np.array([int(index) for index in which], dtype=np.int64))
        outside = chosen[(chosen < 0) | (chosen >= len(self))]
        twice = chosen[1:][chosen[1:] == chosen[:-1]]
        wanted = f"indices of these {len(self)} images, 0..{len(self) - 1}, each once"
        require(not len(outside), "select", next(iter(outside.tolist()), None), wanted)
        require(not len(twice), "select", next(iter(twice.tolist()), None), f"{wanted}; it is given twice")
        require(len(chosen) > 0, "select", "no image", f"at least one of {len(self)}")
        selected = copy.copy(self)
        images = chosen if self._selection is None else self._selection.images[chosen]
        selected._selection = Selection(images, self.records.index.sizes)
        selected._epoch = self._epoch.clone().share_memory_()
        selected._reader = None
        return selected

    def head(self, count: int) -> Self:
        """Return the first `count` images in record order, or all of them. Raises as `select` does."""
        require(count >= 1, "head", count, "at least 1")
        return self.select(range(min(count, len(self))))

    def _rows(self) -> Iterator[Row]:
        images, threads = self._open()
        index = self.records.index

        def read(record: int) -> tuple[list[str], dict[str, npt.NDArray[np.int64]]]:
            return images.header(record).ids, images.labels(record)

        records = range(len(self._ends))
        read_all = map(read, records) if threads is None else threads.map(read, records)
        chosen = None if self._selection is None else set(self._selection.images.tolist())
        number, position = 0, 0
        for ids, labels in read_all:
            for i, name in enumerate(ids):
                if chosen is None or number in chosen:
                    of_image = {label: index.classes[label][values[i]] for label, values in labels.items()}
                    yield Row(index=position, id=name, label=of_image[self.label], labels=of_image)
                    position += 1
                number += 1

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return an image with its label, or a dict of `label` and fields. Raises as `__getitems__` does."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Return images and labels, in this order. Images close together in a record share a read.

        Raises:
            IndexError: there is no such image.
            ConfigError: the scan policy follows training, which a dataset in worker processes cannot observe.
            RecordError: an image is damaged or cannot be decoded.
            StorageError: the storage could not deliver.
        """
        locations = [self._locate(int(index)) for index in indices]
        epoch, policy = int(self._epoch), self._by_epoch()
        transform = WholeImageTransform(self.transform, self.images_as)
        decode = self.records.open_decoder(self.decode)
        found: list[Any] = [None] * len(locations)
        with random_states_restored() if self.seed is not None else nullcontext():
            for read_here in self._read(locations, epoch, policy):
                path = self.records.path(read_here.record)
                for n, ((position, i), file) in enumerate(
                    zip(read_here.images, read_here.files, strict=True)
                ):
                    name = f"image {i} of record {path} (scan group {read_here.group})"
                    pixels = whole_image(decode(file, read_here.group, name))
                    if self.seed is not None:
                        key = epoch, int(indices[position]) % len(self)
                        transform.seed(int(stream(self.seed, Purpose.AUGMENTATION, *key).integers(2**63)))
                    label = self._value(int(read_here.labels[i]))
                    if self.fields is None:
                        found[position] = transform(pixels), label
                        continue
                    size_px = pixels.shape[1], pixels.shape[0]
                    fields = decode_fields(read_here.fields[n], self.fields.kinds, size_px, name)
                    image, fields = transform.with_fields(pixels, fields)
                    found[position] = image, {"label": label, **fields}
        return found

    def _value(self, label: int) -> Any:
        """Return the label of a class index: an int, or a tensor of shape [] or [K]."""
        value = self.label_values[label]
        is_index = self.label_values.dtype == np.int64 and value.ndim == 0
        return int(value) if is_index else torch.as_tensor(value).clone()

    def collate(self, samples: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Collate samples into a batch as `loader` does: `DataLoader(dataset, collate_fn=dataset.collate)`.

        Masks and arrays are stacked; boxes, texts and JSON stay lists with one item per image.

        Raises:
            LoaderError: masks or arrays differ in shape.
        """
        if self.fields is None:
            images, labels = default_collate(list(samples))
            return images, labels
        images = default_collate([image for image, _ in samples])
        labels = default_collate([target["label"] for _, target in samples])
        beside = [{name: target[name] for name in target if name != "label"} for _, target in samples]
        return images, {"label": labels, **collate_fields(beside, self.fields.kinds)}

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch (from 0) of all later reads, also in worker processes: for schedules and mixtures."""
        self._epoch.fill_(epoch)

    def id(self, index: int) -> str:
        """Return the id of an image. For a folder of images, it is the file's path in that folder."""
        record, i = self._locate(index)
        return self._open()[0].header(record).ids[i]

    def encoded(self, index: int, group: int | None = None) -> bytes:
        """Return an image as a JPEG file, at a scan group (None: with all groups)."""
        record, i = self._locate(index)
        wanted = self.records.index.num_groups if group is None else group
        return self._open()[0].read(record, i, wanted)

    def loader(self, batch_size: int, **settings: Any) -> DatasetLoader:
        """Return a loader of these images for training. See `DatasetLoader` for its settings and errors.

        `transform`, `images_as`, `decode` and `seed` default to the dataset's.
        """
        own = {"transform": self.transform, "images_as": self.images_as, "decode": self.decode}
        given = own | ({} if self.seed is None else {"seed": self.seed}) | settings
        values = torch.from_numpy(self.label_values)
        return DatasetLoader(
            self.records,
            self.scan,
            label=self.label,
            label_values=values,
            batch_size=batch_size,
            selection=self._selection,
            fields=self.fields,
            **given,
        )

    def mixed_source(self, first_record: int, num_images: int) -> MixedSource:
        """Return these as a mixture source: `num_images` per epoch, records numbered from `first_record`."""
        selection = self._selection
        sizes = self.records.index.sizes.tolist() if selection is None else selection.sizes
        return MixedSource(first_record, sizes, num_images, selection)

    @property
    def follows_epochs_itself(self) -> bool:
        """Whether the scan policy depends on the epoch alone and need not observe training."""
        return self._policy.by_epoch

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self._epoch.is_shared():  # a deep copy, or pickled for another program: it gets its own epoch
            self._epoch = self._epoch.clone().share_memory_()

    def _locate(self, index: int) -> tuple[int, int]:
        """Return (record, number in the record) of an image."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        index %= len(self)
        if self._selection is not None:
            index = int(self._selection.images[index])
        record = int(np.searchsorted(self._ends, index, side="right"))
        return record, index - (int(self._ends[record - 1]) if record else 0)

    def _by_epoch(self) -> ScanPolicy:
        if not self.follows_epochs_itself:
            raise ConfigError(
                f"scan={self.scan!r}: images cannot be read by index with this policy, because it follows "
                "training, which a dataset in worker processes never sees. Use .loader(...) and "
                "loader.observe(loss=...), or choose a scan group, a schedule or a mixture."
            )
        return self._policy

    def _read(
        self, locations: list[tuple[int, int]], epoch: int, policy: ScanPolicy
    ) -> Iterable[_PartialRead]:
        """Read the images at these (record, number in the record), grouped by record."""
        images, threads = self._open()
        wanted: dict[int, list[tuple[int, int]]] = {}
        for position, (record, i) in enumerate(locations):
            wanted.setdefault(record, []).append((position, i))
        gap = _MAX_GAP_REMOTE_BYTES if threads is not None else _MAX_GAP_BYTES

        def read(record: int) -> _PartialRead:
            group = policy.group(epoch, record)
            assert group is not None  # policies that depend on the epoch alone always decide
            numbers = [i for _, i in wanted[record]]
            files = images.read_several(record, numbers, group, max_gap_bytes=gap)
            fields = self.fields.read_several(record, numbers) if self.fields is not None else []
            return _PartialRead(
                record, group, wanted[record], files, images.labels(record)[self.label], fields
            )

        return map(read, wanted) if threads is None else threads.map(read, wanted)

    def _open(self) -> tuple[SingleImages, ThreadPoolExecutor | None]:
        """Return this process's reader, and a thread pool if the storage is remote."""
        if self._reader is None or self._reader[0] != os.getpid():
            largest = int(self.records.index.sizes.max(initial=1))
            kept = max(256, _TABLES_BYTES // (_TABLE_ROW_BYTES * largest))
            is_remote = self.records.storage.is_remote
            threads = ThreadPoolExecutor(_NUM_THREADS, "pcr-exp-read") if is_remote else None
            self._reader = os.getpid(), SingleImages(self.records, kept), threads
        return self._reader[1], self._reader[2]


class StaticDataset(RecordDataset):
    """Dataset that every epoch reads alike: one scan group, and no seed.

    It has no `set_epoch`. If a dataset has one, timm's training script calls it and does not set the epoch of
    its sampler. Distributed processes would then see the images in the same order in every epoch.
    """

    @property
    def set_epoch(self) -> NoReturn:
        raise AttributeError(
            f"scan={self.scan!r} without a seed: every epoch is read alike, so there is no set_epoch. Check "
            "hasattr(dataset, 'set_epoch') first, or open the dataset with a seed."
        )
