"""Whether what came is the record that an index means, and all of it."""

from __future__ import annotations

from pcr_exp.errors import RecordError
from pcr_exp.records.entries import RecordEntry
from pcr_exp.records.format import RecordHeader
from pcr_exp.records.index import RecordIndex


def check_header(header: RecordHeader, end: int, index: RecordIndex, entry: RecordEntry, where: str) -> None:
    """Compare a header, which ends at byte `end`, with an index's entry.

    Raises:
        RecordError: it is another record's, or its labels are classes that the index does not have.
    """
    pairs = {
        "dataset": (header.dataset, index.dataset),
        "split": (header.split, index.split),
        "encoding": (header.encoding, index.encoding),
        "fingerprint": (header.fingerprint, entry.fingerprint or index.fingerprint),
        "scans": (header.scans, index.scans),
        "number of groups": (header.num_groups, index.num_groups),
        "number of samples": (header.num_samples, entry.num_samples),
        "header's end": (end, entry.header_bytes),
        "labels": (sorted(header.labels), sorted(index.classes)),
    }
    for name, (found, wanted) in pairs.items():
        if found != wanted:
            raise RecordError(
                f"{where} does not belong to its index: {name} is {found!r:.200}, the index says "
                f"{wanted!r:.200}. Files of two encodes are mixed: delete the records' folder and encode "
                "again."
            )
    for name, values in header.labels.items():
        num_classes = len(index.classes[name])
        if max(values) >= num_classes:
            raise RecordError(
                f"{where} does not belong to its index: a label of {name!r:.200} is {max(values)}, the "
                f"index has {num_classes} classes of it. Delete the records' folder and encode again."
            )
