"""Images of records made before, taken over into new ones without transcoding."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

import xxhash

from pcr_exp.errors import RecordError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.images.decode import PROGRESSIVE
from pcr_exp.records.groups import Table
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages
from pcr_exp.storage.local import LocalStorage


class _Record(NamedTuple):
    """A record in both encodings: where its pieces are, and what they and the original files match."""

    records: RecordSet
    number: int
    groups: list[Table]
    originals: Table


class StoredImages:
    """The images in a folder of records, found by id. Thread safe.

    An image is taken over if it has the id and, by length and 64-bit checksum, the bytes of the original that
    the baseline records hold. The folder is only read: once to know where images are, then ten small reads an
    image, so it should lie on an SSD. Half a kB an image is kept.
    """

    def __init__(
        self,
        folder: Path,
        codec: ImageCodec = PROGRESSIVE,
        remedy: str = "Leave records.reuse_from out.",
    ) -> None:
        """`remedy` is what people can do about records that are damaged or unfit.

        Raises RecordError unless `folder` holds splits, each with records in both encodings.
        """
        self.folder = folder
        self._remedy = remedy
        self._codec = codec
        self.num_taken = 0
        """Images that were found so far."""
        self._splits = sorted(path.parents[1].name for path in folder.glob(f"*/pcr/{INDEX_FILE}"))
        if not self._splits or not all((folder / split / "baseline").is_dir() for split in self._splits):
            raise RecordError(
                f"records.reuse_from={folder}: no records to take images over from. Wanted a local folder "
                f"with <split>/pcr/{INDEX_FILE} and <split>/baseline/{INDEX_FILE} in it."
            )
        self._lock = threading.Lock()
        self._places: dict[str, tuple[_Record, int]] | None = None

    def groups(self, image_id: str, original: bytes) -> list[bytes] | None:
        """The pieces, one per scan group, of the image with this id and these bytes; None if there is none.

        Raises:
            RecordError: the records are damaged.
            StorageError: they cannot be read.
        """
        with self._lock:
            if self._places is None:
                self._places = self._find_all()
        record, i = self._places.get(image_id, (None, 0))
        if record is None:
            return None
        bounds, checksums = record.originals
        is_same_length = len(original) == bounds[i + 1] - bounds[i]
        if not is_same_length or xxhash.xxh3_64_intdigest(original) != checksums[i]:
            return None
        pieces = []
        for group, table in enumerate(record.groups, start=1):
            start, end = table.bounds[i : i + 2].tolist()
            piece = record.records.read_range(record.number, start, end) if end > start else b""
            if xxhash.xxh3_64_intdigest(piece) != table.checksums[i]:
                where = f"group {group} of record {self.folder}/{record.records.path(record.number)}"
                raise RecordError(
                    f"{image_id} in {where} is damaged: the checksum does not match. {self._remedy}"
                )
            pieces.append(piece)
        if self._codec.split(b"".join(self._codec.join(pieces))) != pieces:
            raise RecordError(f"{image_id} in {self.folder} is not cut into its scans. Please report this.")
        with self._lock:
            self.num_taken += 1
        return pieces

    def _find_all(self) -> dict[str, tuple[_Record, int]]:
        storage = LocalStorage(self.folder)
        places: dict[str, tuple[_Record, int]] = {}
        for split in self._splits:
            whole, cut = (RecordSet(storage, f"{split}/{encoding}") for encoding in ("baseline", "pcr"))
            wanted = self._codec.num_groups, self._codec.name
            if (cut.index.num_groups, cut.index.scans) != wanted:
                raise RecordError(
                    f"records.reuse_from={self.folder}: {split} is cut into {cut.index.num_groups} groups by "
                    f"the script {cut.index.scans!r}, wanted {wanted[0]} by {wanted[1]!r}. {self._remedy}"
                )
            for number in range(min(len(cut.index.records), len(whole.index.records))):
                ids, groups = _tables(cut, number)
                ids_of_originals, (originals,) = _tables(whole, number)
                if ids != ids_of_originals:
                    raise RecordError(
                        f"records.reuse_from={self.folder}: record {number} of {split} holds other images in "
                        f"baseline than in pcr. {self._remedy}"
                    )
                record = _Record(cut, number, groups, originals)
                places.update((image_id, (record, i)) for i, image_id in enumerate(ids))
        return places


def _tables(records: RecordSet, number: int) -> tuple[list[str], list[Table]]:
    """A record's ids, and where the pieces of each group are, with their checksums."""
    images = SingleImages(records)
    num_groups = records.index.num_groups
    return images.header(number).ids, [images.table(number, group + 1) for group in range(num_groups)]
