"""Parse record headers, check them against the index, and cache them.

The headers that one encode wrote differ only in ids, labels and the number of samples. The first header is
parsed and checked field by field. Later ones are compared with it byte by byte, and only those three fields
are parsed and checked. A header that does not match is parsed in full, so that errors name the fault.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import NamedTuple

from pcr_exp.errors import RecordError
from pcr_exp.records import format as layout
from pcr_exp.records.format import RecordHeader
from pcr_exp.records.index import RecordEntry, RecordIndex
from pcr_exp.records.strict_json import UnfitError, parse_json


def check_header(header: RecordHeader, end: int, index: RecordIndex, entry: RecordEntry, where: str) -> None:
    """Check a header, which ends at byte `end`, against its entry in the index.

    Raises:
        RecordError: the header is another record's, or a label is a class that the index does not have.
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
                f"index has {num_classes} classes for it. Delete the records' folder and encode again."
            )


_KEPT_BYTES = 2**22


class _Frame(NamedTuple):
    """The constant bytes of a header around its ids, labels and number of samples, in that order."""

    header: RecordHeader
    before: bytes
    between: bytes
    counted: bytes
    after: bytes


class KnownHeaders:
    """Cache of the headers of an index's records. Thread safe."""

    def __init__(self, index: RecordIndex) -> None:
        self._index = index
        # Headers take most of the time of small reads, so those verified once are cached.
        self._kept: dict[str, tuple[bytes, RecordHeader, int]] = {}
        self._room = _KEPT_BYTES
        self._frames: dict[str, _Frame] = {}
        """Fingerprint -> frame. Records that were appended have a fingerprint of their own."""
        self._labels = {name: len(classes) for name, classes in index.classes.items()}

    def unpack(self, data: bytes, entry: RecordEntry, where: str) -> tuple[RecordHeader, int]:
        """Return the header at the start of `data`, and the offset at which it ends.

        Raises:
            RecordError: the header is damaged, or belongs to another record than `entry`.
        """
        known = self._kept.get(entry.file)
        if known is not None and known[0] == data:
            return known[1], known[2]
        fingerprint = entry.fingerprint or self._index.fingerprint
        frame = self._frames.get(fingerprint)
        header = None if frame is None else self._in_frame(frame, data, entry)
        end = len(data)
        if header is None:
            header, end = layout.unpack_header(data, where)
            check_header(header, end, self._index, entry, where)
            self._frames[fingerprint] = _frame_of(header)
        if self._room >= len(data) == end:
            self._kept[entry.file] = data, header, end
            self._room -= len(data)
        return header, end

    def _in_frame(self, frame: _Frame, data: bytes, entry: RecordEntry) -> RecordHeader | None:
        """Return the header if `data` is exactly one header that fits the frame; else None."""
        ids_start, labels_end = layout.HEADER_START + len(frame.before), len(data) - len(frame.after)
        ids_end = data.find(frame.between, ids_start)
        count_start = data.rfind(frame.counted, 0, labels_end)
        if not (
            len(data) == entry.header_bytes
            and data.startswith(layout.preamble(len(data) - layout.HEADER_START))
            and data.startswith(frame.before, layout.HEADER_START)
            and data.endswith(frame.after)
            and ids_start < ids_end < count_start < labels_end
            and data[count_start + len(frame.counted) : labels_end] == b"%d" % entry.num_samples
            and layout.checksum_matches(data)
        ):
            return None
        try:
            ids = _texts(data[ids_start:ids_end])
            labels = parse_json(data[ids_end + len(frame.between) : count_start], len(data))
        except UnfitError:
            return None
        if len(ids) != entry.num_samples or not self._are_labels(labels, entry.num_samples):
            return None
        same = frame.header
        return RecordHeader(
            same.dataset, same.split, same.encoding, same.fingerprint, same.num_groups,
            ids, labels, same.images, same.scans,
        )  # fmt: skip

    def _are_labels(self, labels: object, num_samples: int) -> bool:
        return (
            type(labels) is dict
            and labels.keys() == self._labels.keys()
            and all(
                type(values) is list
                and len(values) == num_samples
                and set(map(type, values)) == {int}
                and min(values) >= 0
                and max(values) < self._labels[name]
                for name, values in labels.items()
            )
        )


def _frame_of(header: RecordHeader) -> _Frame:
    content = asdict(header) | {"ids": [], "labels": {}, "num_samples": 0, "minor": layout.MINOR}
    encoded = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    # No string can contain these, because quotation marks in strings are escaped.
    before, rest = encoded.split(b'"ids":[]', 1)
    between, rest = rest.split(b'"labels":{}', 1)
    counted, after = rest.split(b'"num_samples":0', 1)
    return _Frame(header, before + b'"ids":', between + b'"labels":', counted + b'"num_samples":', after)


def _texts(data: bytes) -> list[str]:
    """Parse a JSON list of strings, with a fast path for strings without escapes.

    Raises:
        UnfitError: the data is not a list of strings.
    """
    if len(data) >= 4 and data.startswith(b'["') and data.endswith(b'"]') and b"\\" not in data:
        plain = data[2:-2].decode(errors="replace")
        texts = plain.split('","')
        if plain.isascii() and plain.isprintable() and plain.count('"') == 2 * (len(texts) - 1):
            return texts
    parsed = parse_json(data, len(data))
    if type(parsed) is not list or not set(map(type, parsed)) <= {str}:
        raise UnfitError("it is not a list of texts")
    return parsed
