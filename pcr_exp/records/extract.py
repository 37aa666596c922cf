"""One image out of records, as a file."""

from __future__ import annotations

from collections.abc import Sequence

from pcr_exp.errors import RecordError
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages


def find_image(records: RecordSet, numbers: Sequence[int], image: str) -> tuple[int, int]:
    """(record, number in it) of an image: by its place among the images of these records, or by its id.

    Raises:
        RecordError: there is none.
    """
    place = int(image) if image.isdecimal() else None
    for number in numbers:
        size = records.index.records[number].num_samples
        if place is not None:
            if place < size:
                return number, place
            place -= size
        else:
            ids = records.read_prefix(number, 1).ids
            if image in ids:
                return number, ids.index(image)
    raise RecordError(
        f"{records.folder or records.storage}: there is no image {image!r}. Wanted an image's id, or its "
        f"place from 0 to {sum(records.index.records[number].num_samples for number in numbers) - 1}."
    )


def extract_image(records: RecordSet, record: int, i: int, group: int, *, pieces_only: bool) -> bytes:
    """An image at a scan group as a file, verified; with `pieces_only` as it lies there, which has no end.

    Raises:
        RecordError: the records lack the group, or the image is damaged.
    """
    images = SingleImages(records)
    if pieces_only:
        records.index.check_group(group)
        return b"".join(images.read_piece(record, i, number) for number in range(1, group + 1))
    return images.read(record, i, group).encoded
