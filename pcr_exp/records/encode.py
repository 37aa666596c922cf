"""The encoder: image files -> records in both encodings."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.records.fingerprint import content_key, fingerprint, images_key, sample_bytes
from pcr_exp.records.markers import (
    RecordMarker,
    has_markers,
    read_markers,
    read_rejected,
    remove_leftovers,
    remove_markers,
)
from pcr_exp.records.one_record import Load, Task, explain, load_sample, make_record, states_of
from pcr_exp.records.ray_engine import make_on_ray
from pcr_exp.records.reuse import StoredImages
from pcr_exp.records.writer import ENCODINGS, SplitWriter, StoredImage
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.lock import hold

NO_RAY = "none"
"""Used instead of a cluster's address: encode in this process."""
_LOCK_FILE = ".encode.lock"
Progress = Callable[[int, int], None]
"""Called with (images done, images in all)."""


def no_progress(num_done: int, num_in_all: int) -> None:
    """Report nothing."""


_Step = Callable[[int], None]
"""Called with the number of images done since the last call."""


@dataclass(frozen=True, slots=True)
class EncodeReport:
    """Counts of an encode. `num_bytes` is the total size of the records in bytes, by encoding."""

    num_images: int
    num_rejected: int
    num_records: int
    num_bytes: dict[str, int]
    num_turned: int | None
    """Images stored without applying their EXIF orientation; None if the records existed before."""
    num_reused: int
    """Images copied from other records without transcoding."""
    encode_s: float


def encode_split(
    samples: list[Sample],
    classes: dict[str, list[str]],
    folder: Path,
    *,
    dataset: str,
    split: str,
    images_per_record: int,
    on_error: str = "fail",
    num_workers: int = 1,
    progress: Progress = no_progress,
    ray_address: str | None = NO_RAY,
    max_pixels: int = MAX_PIXELS,
    on_change: str = "fail",
    reuse: StoredImages | None = None,
    known: Collection[str] | None = None,
    codecs: Mapping[str, ImageCodec] = ENCODINGS,
    fields: Mapping[str, str] | None = None,
) -> EncodeReport:
    """Write `folder/{baseline,pcr}/` and `folder/rejected.csv`; both encodings hold the same samples.

    Record k holds samples k*N to (k+1)*N without rejected ones; a record without samples is not written. An
    interrupted encode resumes and produces the same bytes as an uninterrupted one. Images found in `reuse`
    are not transcoded again; the bytes are the same.

    With `on_change` "reencode", existing records of other files are replaced. With "append", `known` holds
    the ids that finished records were made from; only other samples are encoded, as additional records.

    With a `ray_address`, the machines of a cluster make the records; the bytes are the same (`ray_engine`).

    `codecs` gives the codec of each encoding: `baseline` stores files unchanged, `pcr` cuts them into scans.

    `fields` (name -> kind) are stored byte for byte, in a separate file for each record.

    Memory use is at most five times the bytes of a record, plus that of `num_workers` transcoders. It holds
    the images of the record being written and of as many more, each in both encodings, and a second copy of
    the encoding being written.

    Raises:
        ImageError: `on_error` is "fail" and an image cannot be stored; names the first one and the reason.
        RecordError: `folder` holds records of other files, another process is encoding there, no image is
            left, or no transcoder is installed.
        StorageError: the disk is full or cannot be written to.
    """
    started = time.monotonic()
    tasks = [(sample, sample_bytes(sample)) for sample in samples]
    key_of = partial(
        fingerprint,
        classes=classes,
        dataset=dataset,
        split=split,
        images_per_record=images_per_record,
        scans={encoding: codec.name for encoding, codec in codecs.items()},
        fields=fields,
    )
    writer = SplitWriter(
        folder,
        dataset,
        split,
        classes,
        images_key(tasks),
        key_of(tasks),
        codecs=codecs,
        fields=fields or {},
    )
    if on_change == "reencode":
        writer.remove_indexes_of_others()
    if on_change == "append" and known is not None:
        tasks, writer = _plan_append(tasks, writer, known, key_of)
    num_turned, num_reused = None, 0
    if not writer.is_finished() or has_markers(folder):
        make_folder(folder)
        with encode_lock(folder):
            if not writer.is_finished():
                codecs["pcr"].check_installed()  # fails before any work; its error names what to install
                num_taken_before = _num_taken(reuse)
                load = partial(
                    load_sample, max_pixels=max_pixels, reuse=reuse, codec=codecs["pcr"], fields=fields
                )
                encoder = _Encoder(writer, load, images_per_record, on_error, num_workers, ray_address)
                markers = encoder.run(tasks, progress)
                writer.finish(markers)
                num_turned = sum(marker.num_turned for marker in markers)
                num_reused = _num_taken(reuse) - num_taken_before
            remove_markers(folder)
    progress(len(samples), len(samples))
    indexes = writer.read_indexes()
    return EncodeReport(
        num_images=indexes["pcr"].num_samples,
        num_rejected=len(read_rejected(folder)),
        num_records=len(indexes["pcr"].records),
        num_bytes={name: index.epoch_bytes(index.num_groups) for name, index in indexes.items()},
        num_turned=num_turned,
        num_reused=num_reused,
        encode_s=time.monotonic() - started,
    )


def _num_taken(reuse: StoredImages | None) -> int:
    return 0 if reuse is None else reuse.num_taken


def _plan_append(
    tasks: list[Task], writer: SplitWriter, known: Collection[str], key_of: Callable[[list[Task]], str]
) -> tuple[list[Task], SplitWriter]:
    """Return the tasks left to encode, and a writer whose indexes list the old records and then the new.

    The images key covers all images, as if they had been encoded at once; the fingerprint differs.
    The index of `pcr` is written last. Until then it shows which records existed before.

    Args:
        tasks: all images of the split.
        writer: the writer for an encode of all of them.
        known: ids of the images that the records were made from.
        key_of: computes the fingerprint of an encode of some tasks.

    Raises:
        RecordError: the records have other classes or fields, or were not made from the `known` images.
    """
    indexes = writer.parse_indexes()
    if indexes.keys() != ENCODINGS.keys():
        return tasks, writer
    before = indexes["pcr"]
    if before.classes != writer.classes:
        raise RecordError(
            f"{writer.folder} holds records whose classes differ from those that {writer.dataset} has now. "
            "Images cannot be added to them, because labels are stored as class numbers. Encode the records "
            "again with records.on_change=reencode."
        )
    if before.fields != writer.fields:
        raise RecordError(
            f"{writer.folder} holds records with the fields {dict(before.fields)}, but {writer.dataset} "
            f"now has {dict(writer.fields)}. Images cannot be added to them. Encode the records again with "
            "records.on_change=reencode."
        )
    if before.images == writer.images:
        return [], replace(writer, fingerprint=before.fingerprint)
    if images_key([task for task in tasks if task[0].id in known]) != before.images:
        raise RecordError(
            f"{writer.folder} does not hold the images that source_images.csv.gz next to it lists. Either an "
            "append was interrupted and images have changed since, or the list belongs to other records. "
            "Encode the records again with records.on_change=reencode."
        )
    new = [task for task in tasks if task[0].id not in known]
    earlier = {
        encoding: [
            replace(entry, fingerprint=entry.fingerprint or before.fingerprint)
            for entry in index.records[: len(before.records)]
        ]
        for encoding, index in indexes.items()
    }
    parts = [writer.fingerprint, key_of(new), sorted({str(entry.fingerprint) for entry in earlier["pcr"]})]
    return new, replace(writer, fingerprint=content_key(json.dumps(parts).encode()), earlier=earlier)


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Makes the missing records of a split."""

    writer: SplitWriter
    load: Load
    images_per_record: int
    on_error: str
    num_workers: int
    ray_address: str | None

    def run(self, tasks: list[Task], progress: Progress) -> list[RecordMarker]:
        """Make the missing records, and return the markers of all records in order."""
        num_done = 0

        def step(num_images: int) -> None:
            nonlocal num_done
            num_done += num_images
            progress(num_done, len(tasks))

        writer = self.writer
        markers = read_markers(writer.folder, writer.fingerprint)
        earlier = {
            file.file for entries in writer.earlier.values() for entry in entries for file in entry.files
        }
        remove_leftovers(writer.folder, markers, keep=earlier)
        for encoding in ENCODINGS:
            make_folder(writer.folder / encoding)
        starts = range(0, len(tasks), self.images_per_record)
        records = (tasks[start : start + self.images_per_record] for start in starts)
        numbered = dict(enumerate(records, start=writer.first_number))
        for number in markers.keys() & numbered.keys():  # an image may have changed since
            if markers[number].states != states_of(numbered[number]):
                del markers[number]
        missing = {number: record for number, record in numbered.items() if number not in markers}
        with closing((self._here if self.ray_address == NO_RAY else self._on_ray)(missing, step)) as made:
            for number, record in numbered.items():
                if number in missing:
                    markers[number] = next(made)
                    continue
                rejected = markers[number].rejected
                if self.on_error == "fail" and rejected:  # begun with skip, continued with fail
                    raise explain(*rejected[0])
                step(len(record))
        return [markers[number] for number in numbered]

    def _here(self, records: Mapping[int, list[Task]], step: _Step) -> Generator[RecordMarker, None, None]:
        """Make the records one by one in this process, from images loaded by threads; yield their markers."""
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="encode")
        try:
            states: dict[int, str] = {}

            def tasks() -> Iterator[Task]:
                for number, record in records.items():
                    states[number] = states_of(record)
                    yield from record

            outcomes = _in_order(pool, self.load, tasks(), self.images_per_record)
            for number, record in records.items():
                loaded = []
                for (sample, _), outcome in zip(record, outcomes, strict=False):
                    if self.on_error == "fail" and isinstance(outcome, ImageError):
                        raise explain(str(sample.path), str(outcome))
                    loaded.append((sample, outcome))
                    step(1)
                yield self.writer.write_record(number, loaded, states.pop(number))
        finally:
            pool.shutdown(cancel_futures=True)

    def _on_ray(self, records: Mapping[int, list[Task]], step: _Step) -> Generator[RecordMarker, None, None]:
        """Make the records on the machines of a cluster; yield their markers in order."""
        make = partial(make_record, writer=self.writer, on_error=self.on_error, load=self.load)
        for number, made in make_on_ray(make, records, self.ray_address):
            if isinstance(made, ImageError):
                raise made
            step(len(records[number]))
            yield made


def _in_order(
    pool: ThreadPoolExecutor, load: Load, tasks: Iterable[Task], ahead: int
) -> Iterator[StoredImage | ImageError]:
    """Yield outcomes in the order of the tasks, with at most `ahead` tasks queued or running."""
    remaining = iter(tasks)
    pending: deque[Future[StoredImage | ImageError]] = deque(
        pool.submit(load, *task) for task in islice(remaining, ahead)
    )
    while pending:
        outcome = pending.popleft().result()
        pending.extend(pool.submit(load, *task) for task in islice(remaining, 1))
        yield outcome


@contextmanager
def encode_lock(folder: Path) -> Iterator[None]:
    """Hold the lock that allows only this process to encode into a folder.

    Raises:
        RecordError: another process is encoding there.
        StorageError: the folder cannot be written to.
    """

    def in_use(holder: str) -> RecordError:
        return RecordError(
            f"{folder} is being encoded by {holder}. Wait for it to end, then run this again. It will find "
            "the records finished."
        )

    with hold(folder / _LOCK_FILE, in_use):
        yield
