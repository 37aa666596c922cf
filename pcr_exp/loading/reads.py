"""Reads: how they are done, what of a record is then in memory, and what replaces a damaged image."""

from __future__ import annotations

import logging
from dataclasses import replace

from pcr_exp.errors import LoaderError, RecordError
from pcr_exp.loading.order import Order, Request
from pcr_exp.records.fields import Beside, RecordFields
from pcr_exp.records.groups import Extension, RecordPrefix
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.randomness import Purpose, stream

log = logging.getLogger(__name__)


class Reads:
    """The reads of an epoch that are in use; each brings a prefix of a record."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._in_use: dict[int, RecordPrefix] = {}

    def open(self, read: int, result: RecordPrefix | Extension) -> tuple[int, bool]:
        """Begin to use what a read has brought: (bytes, whether they are the first of their record)."""
        assert isinstance(result, RecordPrefix)
        self._in_use[read] = result
        return result.num_bytes, True

    def samples(self, read: int) -> RecordPrefix:
        """The samples of a read that is in use."""
        return self._in_use[read]

    def label(self, read: int, sample: int, name: str) -> int:
        """Class index of a sample."""
        return int(self._in_use[read].labels[name][sample])

    def newest_group(self) -> int:
        """Scan group of the read that was opened last, of those in use; 0 if there is none."""
        return self._in_use[max(self._in_use)].group if self._in_use else 0

    def release(self, read: int, position: int) -> None:
        """Forget a read after the last position that uses it."""
        if self._order.last_use[read] == position:
            del self._in_use[read]

    def trim(self, position: int) -> None:
        """Make what is in use smaller, if it can be: only positions from `position` on are to come."""


def read_one(
    records: RecordSet,
    request: Request,
    *,
    fields: RecordFields | None = None,
    replacing: int | None = None,
) -> RecordPrefix | Extension:
    """Do a read, of `fields` too; with `replacing`, a seed, damaged images are replaced.

    Raises:
        RecordError, StorageError: as `RecordSet.read_prefix` and `read_extension`.
    """
    if request.after:
        return records.read_extension(request.record, request.after, request.group)
    if replacing is None:
        return _read(records, request.record, request.group, fields)
    return read_with_replacements(records, request.record, request.group, replacing, request.epoch, fields)


def _read(records: RecordSet, record: int, group: int, fields: RecordFields | None) -> RecordPrefix:
    prefix = records.read_prefix(record, group)
    return prefix if fields is None else _with(prefix, fields.read(record))


def _with(prefix: RecordPrefix, beside: Beside) -> RecordPrefix:
    if beside.ids is not None and beside.ids[: len(prefix)] != prefix.ids:
        raise RecordError(
            f"the fields beside the record of {prefix.ids[0]} are those of {beside.ids[0]} and others: "
            "files were exchanged. Copy the records again from where they were made, or encode again."
        )
    return replace(prefix, fields=beside.samples, num_bytes=prefix.num_bytes + beside.num_bytes)


def read_many(records: RecordSet, requests: list[Request]) -> list[RecordPrefix]:
    """Do several reads by one call of the storage.

    Raises:
        LoaderError: one of them continues another.
        RecordError, StorageError: as `RecordSet.read_prefixes`.
    """
    if any(request.after for request in requests):
        raise LoaderError("reads that continue others are done one by one")
    return records.read_prefixes([(request.record, request.group) for request in requests])


def read_with_replacements(
    records: RecordSet,
    record: int,
    group: int,
    seed: int,
    epoch: int,
    fields: RecordFields | None = None,
) -> RecordPrefix:
    """A prefix as `read_prefix` gives it; damaged images of the record are replaced by others of it.

    With `fields`, images of which one of these is damaged are replaced, too.

    Which one stands in for which follows from (seed, epoch, record, number in the record), whatever else is
    read, by however many processes. Its label comes with it.

    Raises:
        RecordError: more than single images is damaged, or all of them are.
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
        "%s on_corrupt=replace: in epoch %d, %s stand in for %s.",
        *(refusal, epoch + 1, [ids[i] for i in replaced], [prefix.ids[i] for i in replaced]),
    )
    return replace(prefix, ids=ids, labels=labels, replaced=replaced)


def _draw(seed: int, epoch: int, record: int, i: int) -> int:
    return int(stream(seed, Purpose.REPLACEMENT, epoch, record, i).integers(2**31))
