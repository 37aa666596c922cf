"""What a model reaches that always says the same: the share of the most frequent class."""

from __future__ import annotations

import numpy as np

from pcr_exp.records.reader import RecordSet


def majority_share(records: RecordSet, label: str) -> float | None:
    """Return the share (0 to 1) of a split's images that are of its most frequent class.

    Only the records' headers are read. None: there is no image, or the records are of a version whose index
    does not say where headers end.

    Raises:
        PcrExpError: a record cannot be read, or is damaged.
    """
    index = records.index
    counts = np.zeros(len(index.classes[label]), dtype=np.int64)
    for number, kept in enumerate(index.records):
        entry = records.stored(number)
        if not entry.header_bytes:
            return None
        data = records.read_range(number, 0, entry.header_bytes)
        header, _ = records.unpack_header(data, entry, f"record {records.path(number)}")
        counts += np.bincount(header.labels[label][: kept.num_samples], minlength=len(counts))
    return float(counts.max() / counts.sum()) if counts.sum() else None
