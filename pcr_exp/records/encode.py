"""The encoder: image files -> records in both encodings."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from pcr_exp.config.records import MAX_PIXELS, SCANS
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.records.append import plan_append
from pcr_exp.records.fingerprint import file_size, fingerprint, images_key
from pcr_exp.records.image import Known, StoredImage, load_image, pieces_as_they_lie
from pcr_exp.records.receipts import (
    Receipt,
    has_receipts,
    read_receipts,
    read_rejected,
    remove_leftovers,
    remove_receipts,
)
from pcr_exp.records.reuse import StoredImages
from pcr_exp.records.writer import ENCODINGS, SplitWriter
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.lock import hold

_LOCK_FILE = ".encode.lock"
Progress = Callable[[int, int], None]
"""Told (images done, images in all)."""

_Task = tuple[Sample, int | None]
"""A sample and its file's size, None if that could not be looked at."""
_Load = Callable[[Sample, int | None], StoredImage | ImageError]
"""Loads the image of a sample, given its file's size."""


@dataclass(frozen=True, slots=True)
class EncodeReport:
    """What an encode did. `num_bytes` is the size of all records, by encoding."""

    num_images: int
    num_rejected: int
    num_records: int
    num_bytes: dict[str, int]
    num_turned: int | None
    """Images stored without the turn that their EXIF orientation asks for; None if they were there before."""
    num_reused: int
    """Images taken over from other records, without transcoding."""
    encode_s: float


def encode_split(
    samples: list[Sample],
    classes: dict[str, list[str]],
    folder: Path,
    *,
    dataset: str,
    split: str,
    images_per_record: int,
    on_error: str,
    num_workers: int,
    progress: Progress,
    max_pixels: int = MAX_PIXELS,
    on_change: str = "fail",
    reuse: StoredImages | None = None,
    known: Collection[str] | None = None,
    codecs: Mapping[str, ImageCodec] = ENCODINGS,
) -> EncodeReport:
    """Write `folder/{baseline,pcr}/` and `folder/rejected.csv`; both encodings hold the same samples.

    Record k holds samples k*N to (k+1)*N, less the rejected; a record that is wholly rejected is left out. An
    encode that was stopped continues, and ends with the bytes that it would have written unstopped. Images
    that `reuse` holds are not transcoded again; the bytes are the same.

    With `on_change` "reencode", records of other files that lie there give way. With "append" and the ids
    `known` that finished records were made of, only the other samples are encoded, as records beside those.

    `codecs` store the images of each encoding: files as they are in `baseline`, cut into scans in `pcr`.

    Memory holds five times a record's bytes at most, and what `num_workers` transcoders take: the images of
    the record that is being written and of as many more, each in both encodings, and the encoding being
    written once more.

    Raises:
        ImageError: `on_error` is "fail" and an image cannot be stored: the first by order, and why.
        RecordError: `folder` holds records of other files, or another process is encoding there; or no image
            is left; or there is nothing to transcode with.
        StorageError: the disk is full or refuses.
    """
    started = time.monotonic()
    tasks = [(sample, _num_bytes(sample)) for sample in samples]
    scans = {encoding: codec.name for encoding, codec in codecs.items()}
    key = fingerprint(
        tasks, classes, dataset=dataset, split=split, images_per_record=images_per_record, scans=scans
    )
    writer = SplitWriter(folder, dataset, split, classes, images_key(tasks), key, codecs=codecs)
    if on_change == "reencode":
        writer.remove_indexes_of_others()
    if on_change == "append" and known is not None:
        tasks, writer = plan_append(tasks, writer, known, images_per_record)
    num_turned, num_reused = None, 0
    if not writer.is_finished() or has_receipts(folder):
        make_folder(folder)
        with encode_lock(folder):
            if not writer.is_finished():
                codecs["pcr"].check_installed()  # before any work: its error says what to install
                num_taken_before = _num_taken(reuse)
                load = partial(_load, max_pixels=max_pixels, reuse=reuse, codec=codecs["pcr"])
                receipts = _encode_records(
                    tasks, writer, images_per_record, on_error, num_workers, progress, load
                )
                writer.finish(receipts)
                num_turned = sum(receipt.num_turned for receipt in receipts)
                num_reused = _num_taken(reuse) - num_taken_before
            remove_receipts(folder)
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


def _num_bytes(sample: Sample) -> int | None:
    return file_size(sample.path) if sample.packed is None else sample.packed.num_bytes


def _num_taken(reuse: StoredImages | None) -> int:
    return 0 if reuse is None else reuse.num_taken


def _encode_records(
    tasks: list[_Task],
    writer: SplitWriter,
    images_per_record: int,
    on_error: str,
    num_workers: int,
    progress: Progress,
    load: _Load,
) -> list[Receipt]:
    receipts = read_receipts(writer.folder, writer.fingerprint)
    earlier = {entry.file for entries in writer.earlier.values() for entry in entries}
    remove_leftovers(writer.folder, list(ENCODINGS), receipts, keep=earlier)
    for encoding in ENCODINGS:
        make_folder(writer.folder / encoding)
    starts = range(0, len(tasks), images_per_record)
    records = [tasks[start : start + images_per_record] for start in starts]
    numbered = dict(enumerate(records, start=writer.first_number))
    missing = (task for number, record in numbered.items() if number not in receipts for task in record)
    num_done = 0
    finished = dict(receipts)
    pool = ThreadPoolExecutor(num_workers, thread_name_prefix="encode")
    try:
        outcomes = _in_order(pool, load, missing, ahead=images_per_record)
        for number, record in numbered.items():
            if number in receipts:
                if on_error == "fail" and receipts[number].rejected:  # begun with skip, continued with fail
                    raise _explain(*receipts[number].rejected[0])
                num_done += len(record)
                progress(num_done, len(tasks))
                continue
            loaded = []
            for (sample, _), outcome in zip(record, outcomes, strict=False):
                if on_error == "fail" and isinstance(outcome, ImageError):
                    raise _explain(str(sample.path), str(outcome))
                loaded.append((sample, outcome))
                num_done += 1
                progress(num_done, len(tasks))
            finished[number] = writer.write_record(number, loaded)
    finally:
        pool.shutdown(cancel_futures=True)
    return [finished[number] for number in numbered]


def _in_order(
    pool: ThreadPoolExecutor, load: _Load, tasks: Iterable[_Task], ahead: int
) -> Iterator[StoredImage | ImageError]:
    """Outcomes in the order of the tasks, `ahead` of them at most waiting or at work."""
    remaining = iter(tasks)
    pending: deque[Future[StoredImage | ImageError]] = deque(
        pool.submit(load, *task) for task in islice(remaining, ahead)
    )
    while pending:
        outcome = pending.popleft().result()
        pending.extend(pool.submit(load, *task) for task in islice(remaining, 1))
        yield outcome


def _load(
    sample: Sample,
    num_bytes: int | None,
    *,
    max_pixels: int,
    reuse: StoredImages | None,
    codec: ImageCodec,
) -> StoredImage | ImageError:
    known: Known | None = None if reuse is None else partial(reuse.groups, sample.id)
    if sample.packed is not None and codec.name == SCANS["pcr"]:
        known = partial(pieces_as_they_lie, sample.packed)
    try:
        return load_image(sample.file, num_bytes, max_pixels, known, codec)
    except ImageError as error:
        return error


def _explain(image: str, reason: str) -> ImageError:
    return ImageError(
        f"{image}: {reason}. Repair or remove it, or set records.on_error=skip to leave such images out and "
        "list them in rejected.csv."
    )


@contextmanager
def encode_lock(folder: Path) -> Iterator[None]:
    """Let this process alone encode into a folder.

    Raises:
        RecordError: another process is encoding there.
        StorageError: the folder cannot be written to.
    """

    def in_use(holder: str) -> RecordError:
        return RecordError(
            f"{folder} is being encoded by {holder}. Wait for it to end, then run this again: it will find "
            "the records done."
        )

    with hold(folder / _LOCK_FILE, in_use):
        yield
