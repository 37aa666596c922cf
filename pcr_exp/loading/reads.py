"""Reads: perform them, hold the record data in use, and replace damaged images."""

from __future__ import annotations

import logging
from dataclasses import replace

from pcr_exp.errors import LoaderError, RecordError
from pcr_exp.loading.order import Order, Request
from pcr_exp.records.fields import ReadFields, RecordFields
from pcr_exp.records.groups import Extension, RecordPrefix
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.randomness import Purpose, stream

log = logging.getLogger(__name__)


class Reads:
    """The reads of an epoch that are in use. Each yields a record prefix."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._in_use: dict[int, RecordPrefix] = {}

    def open(self, read: int, result: RecordPrefix | Extension) -> tuple[int, bool]:
        """Start using a read's result; return (bytes read, whether it is the first read of its record)."""
        assert isinstance(result, RecordPrefix)
        self._in_use[read] = result
        return result.num_bytes, True

    def samples(self, read: int) -> RecordPrefix:
        """Return the samples of a read that is in use."""
        return self._in_use[read]

    def label(self, read: int, sample: int, name: str) -> int:
        """Return the class index of a sample."""
        return int(self._in_use[read].labels[name][sample])

    def newest_group(self) -> int:
        """Return the scan group of the most recently opened read in use; 0 if none is in use."""
        return self._in_use[max(self._in_use)].group if self._in_use else 0

    def release(self, read: int, position: int) -> None:
        """Drop a read if `position` is the last one that uses it."""
        if self._order.last_use[read] == position:
            del self._in_use[read]

    def trim(self, position: int) -> None:
        """Shrink the reads in use where possible, as only positions from `position` on remain."""


def read_one(
    records: RecordSet,
    request: Request,
    *,
    fields: RecordFields | None = None,
    replacing: int | None = None,
) -> RecordPrefix | Extension:
    """Perform a read. A prefix includes `fields`; with `replacing`, a seed, damaged images are replaced.

    Raises:
        RecordError, StorageError: as for `RecordSet.read_prefix` and `read_extension`.
    """
    if request.after:
        return records.read_extension(request.record, request.after, request.group)
    if replacing is None:
        return _read(records, request.record, request.group, fields)
    return read_with_replacements(records, request.record, request.group, replacing, request.epoch, fields)


def _read(records: RecordSet, record: int, group: int, fields: RecordFields | None) -> RecordPrefix:
    prefix = records.read_prefix(record, group)
    return prefix if fields is None else _with(prefix, fields.read(record))


def _with(prefix: RecordPrefix, beside: ReadFields) -> RecordPrefix:
    if beside.ids is not None and beside.ids[: len(prefix)] != prefix.ids:
        raise RecordError(
            f"the fields stored with the record of {prefix.ids[0]} belong to {beside.ids[0]} and others: "
            "files were mixed up. Copy the records again from their source, or encode them again."
        )
    return replace(prefix, fields=beside.samples, num_bytes=prefix.num_bytes + beside.num_bytes)


def read_many(records: RecordSet, requests: list[Request]) -> list[RecordPrefix]:
    """Perform several prefix reads in one storage call.

    Raises:
        LoaderError: a request continues an earlier read.
        RecordError, StorageError: as for `RecordSet.read_prefixes`.
    """
    if any(request.after for request in requests):
        raise LoaderError("a read that continues an earlier one must be made on its own")
    return records.read_prefixes([(request.record, request.group) for request in requests])


def read_with_replacements(
    records: RecordSet,
    record: int,
    group: int,
    seed: int,
    epoch: int,
    fields: RecordFields | None = None,
) -> RecordPrefix:
    """Read a prefix as `read_prefix` does, replacing damaged images with others of the same record.

    With `fields`, images with a damaged field are replaced, too.

    The replacement is a function of (seed, epoch, record, number in the record). It does not depend on other
    reads or on the number of processes. Its label is used as well.

    Raises:
        RecordError: the damage goes beyond single images, or all images are damaged.
        StorageError: the storage could not deliver.
    """
    try:
        return _read(records, record, group, fields)
    except RecordError as error:
        refusal = error
    prefix, damaged = records.read_damaged_prefix(record, group)
    if fields is not None:
        beside, with_damaged_fields = fields.read_damaged(record)
        prefix, damaged = _with(prefix, beside), damaged | with_damaged_fields
    whole = [i for i in range(len(prefix)) if i not in damaged]
    if not whole:
        raise refusal
    replaced = {
        i: whole[_draw(seed, epoch, record, i) % len(whole)] for i in sorted(damaged) if i < len(prefix)
    }
    ids, labels = list(prefix.ids), {name: values.copy() for name, values in prefix.labels.items()}
    for i, other in replaced.items():
        ids[i] = prefix.ids[other]
        for name, values in labels.items():
            values[i] = prefix.labels[name][other]
    log.warning(
        "%s on_corrupt=replace: in epoch %d, %s are used in place of %s.",
        *(refusal, epoch + 1, [ids[i] for i in replaced], [prefix.ids[i] for i in replaced]),
    )
    return replace(prefix, ids=ids, labels=labels, replaced=replaced)


def _draw(seed: int, epoch: int, record: int, i: int) -> int:
    return int(stream(seed, Purpose.REPLACEMENT, epoch, record, i).integers(2**31))
