"""Adding images to records that are finished: new records beside the old ones, which stay as they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import replace

from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import RecordError
from pcr_exp.records.fingerprint import fingerprint
from pcr_exp.records.writer import ENCODINGS, SplitWriter

Task = tuple[Sample, int | None]
"""A sample and its file's size, None if that could not be looked at."""


def plan_append(
    tasks: list[Task], writer: SplitWriter, known: Collection[str], images_per_record: int
) -> tuple[list[Task], SplitWriter]:
    """What is left to encode, and who writes it: indexes that list the old records and then the new.

    The images' key is that of all images, as if they had been encoded at once; the fingerprint is another.
    The indexes are written one after the other, that of `pcr` last: so it says what was there before.

    Args:
        tasks: all images of the split.
        writer: of an encode of all of them.
        known: ids of those that the records were made of.
        images_per_record: images in a new record.

    Raises:
        RecordError: the classes or the fields are others than those of the records.
    """
    indexes = writer.parse_indexes()
    if indexes.keys() != ENCODINGS.keys():
        return tasks, writer
    before = indexes["pcr"]
    if before.classes != writer.classes:
        raise RecordError(
            f"{writer.folder} holds records of other classes than {writer.dataset} has now, so that no image "
            "can be added to them: labels are numbers of classes in order. Make them anew with "
            "records.on_change=reencode."
        )
    if before.fields != writer.fields:
        raise RecordError(
            f"{writer.folder} holds records with the fields {dict(before.fields)}, and {writer.dataset} "
            f"gives {dict(writer.fields)}, so that no image can be added to them. Make them anew with "
            "records.on_change=reencode."
        )
    if before.images == writer.images:
        return [], replace(writer, fingerprint=before.fingerprint)
    new = [task for task in tasks if task[0].id not in known]
    earlier = {
        encoding: [
            replace(entry, fingerprint=entry.fingerprint or before.fingerprint)
            for entry in index.records[: len(before.records)]
        ]
        for encoding, index in indexes.items()
    }
    own = fingerprint(
        new,
        writer.classes,
        dataset=writer.dataset,
        split=writer.split,
        images_per_record=images_per_record,
        scans={encoding: codec.name for encoding, codec in writer.codecs.items()},
        fields=writer.fields,
    )
    parts = [writer.fingerprint, own, sorted({str(entry.fingerprint) for entry in earlier["pcr"]})]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return new, replace(writer, fingerprint=key, earlier=earlier)
