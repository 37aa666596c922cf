"""Another image in place of one that is damaged: `loader.on_corrupt=replace`."""

from __future__ import annotations

import logging
from dataclasses import replace

from pcr_exp.errors import RecordError
from pcr_exp.records.reader import RecordPrefix, RecordSet
from pcr_exp.system.randomness import Purpose, stream

log = logging.getLogger(__name__)


def read_with_replacements(
    records: RecordSet, record: int, group: int, seed: int, epoch: int
) -> RecordPrefix:
    """A prefix as `read_prefix` gives it; damaged images of the record are replaced by others of it.

    Which one stands in for which follows from (seed, epoch, record, number in the record), whatever else is
    read, by however many processes. Its label comes with it.

    Raises:
        RecordError: more than single images is damaged, or all of them are.
        StorageError: the storage could not deliver.
    """
    try:
        return records.read_prefix(record, group)
    except RecordError as error:
        refusal = error
    prefix, damaged = records.read_damaged_prefix(record, group)
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
