"""Reuse images of existing records in new ones without transcoding."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import NamedTuple

import xxhash

from pcr_exp.errors import RecordError, StorageError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.images.decode import PROGRESSIVE
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages
from pcr_exp.storage.local import LocalStorage

log = logging.getLogger(__name__)


class _Stored(NamedTuple):
    """Location of an image in both encodings."""

    cut: SingleImages
    whole: SingleImages
    record: int
    i: int


class StoredImages:
    """The images in a folder of records, found by id. Thread safe.

    An image is reused if the original in the baseline records has its id, length and 64-bit checksum. The
    folder is only read: once to locate the images, then by ten small reads per image, so it should be on an
    SSD. Memory use is 0.5 kB per image.
    """

    def __init__(
        self,
        folder: Path,
        codec: ImageCodec = PROGRESSIVE,
        remedy: str = "Leave records.reuse_from out.",
    ) -> None:
        """`remedy` is the advice in errors about damaged or unsuitable records.

        Raises RecordError unless `folder` holds splits, each with records in both encodings.
        """
        self.folder = folder
        self._remedy = remedy
        self._codec = codec
        self.num_taken = 0
        """Number of images reused so far."""
        self._splits = sorted(path.parents[1].name for path in folder.glob(f"*/pcr/{INDEX_FILE}"))
        if not self._splits or not all((folder / split / "baseline").is_dir() for split in self._splits):
            raise RecordError(
                f"records.reuse_from={folder}: no records to reuse images from. Wanted a local folder "
                f"with <split>/pcr/{INDEX_FILE} and <split>/baseline/{INDEX_FILE} in it."
            )
        self._before = self._indexes()
        self._lock = threading.Lock()
        self._known: dict[str, _Stored] | None = None

    def groups(self, image_id: str, original: bytes) -> list[bytes] | None:
        """Return the pieces, one per scan group, of the image with this id and these bytes; None without one.

        If another process makes the records anew, no further image is reused.

        Raises:
            RecordError: the records are damaged.
            StorageError: the records cannot be read.
        """
        try:
            return self._groups(image_id, original)
        except (RecordError, StorageError) as error:
            if self._indexes() == self._before:
                raise
            log.warning(
                "%s is being made anew, so no more images are reused from it (%s)", self.folder, error
            )
            with self._lock:
                self._known = {}
            return None

    def _indexes(self) -> list[tuple[int, int] | None]:
        """Return the inode and change time of each index, which is removed before its records change."""
        found: list[tuple[int, int] | None] = []
        for split in self._splits:
            try:
                state = (self.folder / split / "pcr" / INDEX_FILE).stat()
                found.append((state.st_ino, state.st_ctime_ns))
            except FileNotFoundError:
                found.append(None)
        return found

    def _groups(self, image_id: str, original: bytes) -> list[bytes] | None:
        with self._lock:
            if self._known is None:
                self._known = self._find_all()
        if image_id not in self._known:
            return None
        cut, whole, record, i = self._known[image_id]
        bounds, checksums = whole.table(record, 1)
        is_same_length = len(original) == bounds[i + 1] - bounds[i]
        if not is_same_length or xxhash.xxh3_64_intdigest(original) != checksums[i]:
            return None
        try:
            pieces = [cut.read_piece(record, i, group + 1) for group in range(self._codec.num_groups)]
        except RecordError as error:
            raise RecordError(f"{image_id} in {self.folder}: {error} {self._remedy}") from error
        if self._codec.split(b"".join(self._codec.join(pieces))) != pieces:
            raise RecordError(
                f"{image_id} in {self.folder}: its pieces do not match its scans. Please report this."
            )
        with self._lock:
            self.num_taken += 1
        return pieces

    def _find_all(self) -> dict[str, _Stored]:
        storage = LocalStorage(self.folder)
        known: dict[str, _Stored] = {}
        for split in self._splits:
            whole, cut = (_open(storage, f"{split}/{encoding}") for encoding in ("baseline", "pcr"))
            index, wanted = cut.records.index, (self._codec.num_groups, self._codec.name)
            if (index.num_groups, index.scans) != wanted:
                raise RecordError(
                    f"records.reuse_from={self.folder}: {split} is cut into {index.num_groups} groups by "
                    f"the script {index.scans!r}, wanted {wanted[0]} by {wanted[1]!r}. {self._remedy}"
                )
            for record in range(min(len(index.records), len(whole.records.index.records))):
                ids = cut.header(record).ids
                if ids != whole.header(record).ids:
                    raise RecordError(
                        f"records.reuse_from={self.folder}: record {record} of {split} holds different "
                        f"images in baseline and in pcr. {self._remedy}"
                    )
                known.update((image_id, _Stored(cut, whole, record, i)) for i, image_id in enumerate(ids))
        return known


def _open(storage: LocalStorage, folder: str) -> SingleImages:
    """Open the images of a split in one encoding, with a cache large enough for all of their tables."""
    records = RecordSet(storage, folder)
    return SingleImages(records, num_cached_tables=len(records.index.records) * records.index.num_groups)
