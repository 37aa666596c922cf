"""Detect images that changed since their records were made, and decide what to do about them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.sample import SPLITS, Dataset, Sample, keep_fields, open_dataset
from pcr_exp.errors import RecordError, StorageError
from pcr_exp.images.codec import Buffer
from pcr_exp.places import as_typed
from pcr_exp.records import sources
from pcr_exp.records.encode import Progress, no_progress
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.index_table import read_index
from pcr_exp.records.markers import read_rejected
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.sources import Changes, Source, SourceImage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.protocol import Storage

log = logging.getLogger(__name__)


def of_other_bytes(
    folder: Path,
    samples: Mapping[str, Sample],
    images: Mapping[str, SourceImage],
    stored: Storage | None = None,
    progress: Progress = no_progress,
) -> list[str]:
    """Return the sorted ids of images whose bytes or fields differ from those in the records in `folder`.

    Compares the files with the originals in the baseline records. An image that the records lack (because it
    was rejected) counts as different, since it may be accepted now.

    Args:
        folder: folder of the splits.
        samples: samples to compare, by id.
        images: gives the split of each sample.
        stored: storage of the records, if they are not in `folder`.
        progress: called with (files compared, files in all).

    Raises:
        RecordError: the records are damaged.
        OSError: the records cannot be read.
    """
    other, num_compared = [], 0
    storage = stored or LocalStorage(folder)
    for split in sorted({images[id_].split for id_ in samples}):
        wanted = {id_ for id_ in samples if images[id_].split == split}
        records = RecordSet(storage, f"{split}/baseline")
        fields = RecordFields(records, list(records.index.fields)) if records.index.fields else None
        for number in range(len(records.index.records)):
            if not wanted:
                break
            prefix = records.read_prefix(number, 1)
            beside = fields.read(number).samples if fields else None
            for i, id_ in enumerate(prefix.ids):
                if id_ in wanted:
                    wanted.remove(id_)
                    num_compared += 1
                    progress(num_compared, len(samples))
                    if not _holds(samples[id_], prefix.encoded(i), beside[i] if beside else {}):
                        other.append(id_)
        other += wanted
    return sorted(other)


def _holds(sample: Sample, content: bytes, fields: Mapping[str, Buffer]) -> bool:
    try:
        return sample.file.read_bytes() == content and all(
            (source if isinstance(source, bytes) else source.read_bytes()) == fields.get(name)
            for name, source in sample.fields.items()
        )
    except OSError:
        return False


class Comparison:
    """Comparison of the images that exist now with those that finished records were made from."""

    def __init__(
        self,
        dataset: DatasetConfig,
        records: RecordsConfig,
        folder: Path,
        stored: Storage | None = None,
    ) -> None:
        """`folder` contains the splits; `stored` is the storage of the records, if they are not there."""
        self._stored = stored
        self._dataset = dataset
        self._records = records
        self._folder = folder
        self._source: Source | None = sources.read_source(folder)
        self.opened: Dataset | None = None
        self.images: dict[str, SourceImage] = {}
        self._before: dict[str, SourceImage] | None = None
        self.changes: Changes | None = None
        """None before `compare`, and if the list of the records' source images is missing."""
        self.at_home = False
        """Whether the images are in their original folder; only then are modification times meaningful."""
        self.num_compared = 0
        """Number of images whose bytes were compared with those in the records."""

    @property
    def known(self) -> Collection[str] | None:
        """Ids of the images that the records were made from; None if that list is missing."""
        return self._before

    def splits_of_other_bytes(self) -> set[str]:
        """Splits in which the contents of a file changed."""
        return {self.images[id_].split for id_ in self.changes.replaced} if self.changes else set()

    def settle(self, *, thorough: bool) -> bool:
        """Return True to read the records as they are, False to encode as `records.on_change` says.

        Raises:
            RecordError: the records are out of date, and `records.on_change` is `fail` or cannot be applied.
        """
        root, source = self._dataset.root, self._source
        if root is None or not Path(root).is_dir():
            log.info("%s: the images are not here, so the records are not compared", self._dataset.name)
            return True
        is_same = source is not None and not self._is_another()
        if source is not None and is_same and not thorough and source.is_unchanged():
            log.info(
                "%s: %d folders, %d label files and %d of %d image files have the same sizes and times as "
                "when the records were made. No image was read; `%s` compares every byte",
                *(root, len(source.folders), len(source.tables), len(source.files), source.num_files),
                as_typed("python -m experiments.prepare --check=content"),
            )
            return True
        self.compare()
        if self.changes is None:  # encoding compares names, labels and sizes by the records' fingerprint
            return not self._records.auto_prepare
        if not self.changes:
            if not (source is not None and is_same and self.images == self._before and source.is_unchanged()):
                self._keep()
            return True
        return self._decide()

    def compare(self, *, contents: bool = False, progress: Progress = no_progress) -> None:
        """Compare every image by name, label, size and modification time; with `contents`, also by bytes.

        Without `contents`, bytes are compared only of images whose time changed but not their size, and only
        in the original folder: copies have their own times. `progress` counts images compared by bytes.
        """
        self.opened = keep_fields(open_dataset(self._dataset), self._records.fields)
        self.images = sources.image_states(self.opened)
        self._before = sources.read_images(self._folder)
        if self._before is None or self._source is None:
            return
        self.changes, doubtful = sources.compare(self._before, self.images)
        self.changes.relabelled.extend(self._renamed())
        root = self._dataset.root
        self.at_home = root is not None and self._source.root == sources.resolved(root)
        if doubtful and self.at_home:
            log.info("comparing the bytes of %d images, whose modification times changed", len(doubtful))
        ids = self._stored_as_they_are(doubtful) if contents else doubtful if self.at_home else []
        if ids:
            samples = {s.id: s for chosen in self.opened.splits.values() for s in chosen}
            asked = {id_: samples[id_] for id_ in ids}
            self.changes.replaced.extend(
                of_other_bytes(self._folder, asked, self.images, self._stored, progress)
            )
        self.num_compared = len(ids)

    def _renamed(self) -> list[str]:
        """Return ids of images whose class kept its index but not its name, as numbers and sets may."""
        assert self.changes is not None and self.opened is not None
        known, found = {*self.changes.added, *self.changes.relabelled}, []
        for split, samples in self.opened.splits.items():
            # Each split's own index is read, since an encode may have been stopped between splits.
            if not (self._folder / split / "pcr" / INDEX_FILE).exists():
                continue
            was = read_index(LocalStorage(self._folder), f"{split}/pcr").classes
            for sample in samples if was != self.opened.classes else ():
                named = (was[label][i] == self.opened.classes[label][i] for label, i in sample.labels.items())
                if sample.id not in known and not all(named):
                    found.append(sample.id)
        return found

    def _stored_as_they_are(self, doubtful: Collection[str]) -> list[str]:
        """Return ids to compare by bytes: all but known changes, and rejected ones unless `doubtful`."""
        assert self.changes is not None
        known = {*self.changes.added, *self.changes.replaced, *self.changes.relabelled}
        rejected = {id_ for split in SPLITS for id_, _ in read_rejected(self._folder / split)}
        return [id_ for id_ in self.images if id_ not in known | (rejected - set(doubtful))]

    def _is_another(self) -> bool:
        """Whether the images come from another folder, or from another table or columns of it."""
        if self._source is None:
            return False
        now = sources.resolved(str(self._dataset.root)), sources.asked_of(self._dataset)
        return (self._source.root, self._source.asked) != now

    def describe(self) -> str:
        """Describe the changes and the remedy."""
        root, made_from, elsewhere = str(self._dataset.root), "", ""
        if self._source is not None and self._source.root != sources.resolved(root):
            made_from = f", in {self._source.root}"
        if self._is_another():
            elsewhere = (
                "If these are two datasets, give this one its own name: dataset.name=<name>; or, with "
                "pcr.open, another folder: prepare=<folder>. "
            )
        return (
            f"the images in {root} are not those that {self._folder} was made from{made_from}: "
            f"{self.changes}. {elsewhere}Set records.on_change: reencode encodes the records again, append "
            "adds records of the images that were added, ignore uses the existing records unchanged."
        )

    def _decide(self) -> bool:
        on_change = self._records.on_change
        if on_change == "ignore":
            log.warning("%s (records.on_change=ignore: the existing records are used)", self.describe())
            return True
        if on_change == "fail":
            raise RecordError(self.describe())
        if not self._records.auto_prepare:
            raise RecordError(
                f"{self.describe()} records.auto_prepare=false forbids records.on_change={on_change}."
            )
        assert self.changes is not None
        others = self.changes.removed or self.changes.replaced or self.changes.relabelled
        if on_change == "append" and others:
            raise RecordError(
                f"{self.describe()} Here, append is not possible: the records hold images that were removed "
                "or have changed."
            )
        return False

    def _keep(self) -> None:
        assert self.opened is not None
        with suppress(StorageError):  # records on a read-only disk are compared again next time
            sources.write_source(self._folder, self._dataset, self.opened, self.images)
