"""Whether the images are still those that records were made of, and what happens if not."""

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
    """Ids of those images that differ, or whose fields do, from what the records in `folder` hold, sorted.

    Reads the original bytes in the baseline records, and the files. An image that records do not hold (it was
    rejected) counts as different: it may be accepted now.

    Args:
        folder: holds the splits.
        samples: those to compare, by id.
        images: says which split each is in.
        stored: where the records lie, if not in `folder`.
        progress: told files that were compared, and all.

    Raises:
        RecordError: the records are damaged.
        OSError: they cannot be read.
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
    """Between the images that are there and those that finished records were made of."""

    def __init__(
        self,
        dataset: DatasetConfig,
        records: RecordsConfig,
        folder: Path,
        stored: Storage | None = None,
    ) -> None:
        """`folder` holds the splits of the records; `stored` does, if records themselves are not there."""
        self._stored = stored
        self._dataset = dataset
        self._records = records
        self._folder = folder
        self._source: Source | None = sources.read_source(folder)
        self.opened: Dataset | None = None
        self.images: dict[str, SourceImage] = {}
        self._before: dict[str, SourceImage] | None = None
        self.changes: Changes | None = None
        """None: what the records were made of was not kept."""
        self.at_home = False
        """Whether the images lie where they lay, so that their times count."""
        self.num_compared = 0
        """Images whose bytes were compared with those in the records."""

    @property
    def known(self) -> Collection[str] | None:
        """Ids of the images that the records were made of; None if that was not kept."""
        return self._before

    def splits_of_other_bytes(self) -> set[str]:
        """Splits in which a file's contents were replaced."""
        return {self.images[id_].split for id_ in self.changes.replaced} if self.changes else set()

    def settle(self, *, thorough: bool) -> bool:
        """Whether the records are to be read as they are; if not, encoding goes on as `on_change` says.

        Raises:
            RecordError: they are out of date, and `records.on_change` is `fail` or cannot be had.
        """
        root, source = self._dataset.root, self._source
        if root is None or not Path(root).is_dir():
            log.info("%s: the images are not here to be compared with the records", self._dataset.name)
            return True
        at_home = source is not None and source.root == sources.resolved(root)
        if source is not None and at_home and not thorough and source.as_it_was():
            log.info(
                "%s: %d folders, %d label files and %d of %d image files have the sizes and times that they "
                "had when the records were made; no image was read: `%s` compares every byte",
                *(root, len(source.folders), len(source.tables), len(source.files), source.num_files),
                as_typed("python -m experiments.prepare --check=content"),
            )
            return True
        self.compare()
        if self.changes is None:  # an encode compares names, labels and sizes with its records' fingerprint
            return not self._records.auto_prepare
        if not self.changes:
            if not (source is not None and at_home and self.images == self._before and source.as_it_was()):
                self._keep()
            return True
        return self._decide()

    def compare(self, *, contents: bool = False, progress: Progress = no_progress) -> None:
        """Compare every image by name, label, size and time, with `contents` by its bytes as well.

        Bytes are compared anyway of an image that has another time and the same size, unless the dataset's
        folder is another: copies have times of their own. `progress` is told files whose bytes were compared.
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
            log.info("%d images have another time than before: their bytes are compared", len(doubtful))
        ids = self._stored_as_they_are(doubtful) if contents else doubtful if self.at_home else []
        if ids:
            samples = {s.id: s for chosen in self.opened.splits.values() for s in chosen}
            asked = {id_: samples[id_] for id_ in ids}
            self.changes.replaced.extend(
                of_other_bytes(self._folder, asked, self.images, self._stored, progress)
            )
        self.num_compared = len(ids)

    def _renamed(self) -> list[str]:
        """Ids of images whose class has the number that it had and another name, as values and sets may."""
        assert self.changes is not None and self.opened is not None
        known, found = {*self.changes.added, *self.changes.relabelled}, []
        for split, samples in self.opened.splits.items():
            # Its own index each: an encode may have been stopped between splits.
            if not (self._folder / split / "pcr" / INDEX_FILE).exists():
                continue
            was = read_index(LocalStorage(self._folder), f"{split}/pcr").classes
            for sample in samples if was != self.opened.classes else ():
                named = (was[label][i] == self.opened.classes[label][i] for label, i in sample.labels.items())
                if sample.id not in known and not all(named):
                    found.append(sample.id)
        return found

    def _stored_as_they_are(self, doubtful: Collection[str]) -> list[str]:
        """Ids of the images to compare byte by byte: not those that are known to differ or were rejected."""
        assert self.changes is not None
        known = {*self.changes.added, *self.changes.replaced, *self.changes.relabelled}
        rejected = {id_ for split in SPLITS for id_, _ in read_rejected(self._folder / split)}
        return [id_ for id_ in self.images if id_ not in known | (rejected - set(doubtful))]

    def describe(self) -> str:
        """The changes, and the remedy."""
        root, made_from, elsewhere = str(self._dataset.root), "", ""
        if self._source is not None and self._source.root != sources.resolved(root):
            made_from = f", in {self._source.root}"
            elsewhere = "If these are two datasets, give this one a name of its own: dataset.name=. "
        return (
            f"the images in {root} are not those that {self._folder} was made of{made_from}: {self.changes}. "
            f"{elsewhere}Choose with records.on_change: reencode makes the records anew, append adds records "
            "of the images that were added, ignore uses the records as they are."
        )

    def _decide(self) -> bool:
        on_change = self._records.on_change
        if on_change == "ignore":
            log.warning("%s (records.on_change=ignore: they are used as they are)", self.describe())
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
                f"{self.describe()} Here append cannot be had: records hold images that are gone or changed."
            )
        return False

    def _keep(self) -> None:
        assert self.opened is not None
        with suppress(StorageError):  # records on a read-only disk are compared again next time
            sources.write_source(self._folder, str(self._dataset.root), self.opened, self.images)
