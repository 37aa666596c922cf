"""Reads: what is asked of storage, what of a record is then in memory, and what replaces a damaged image."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import RecordError
from pcr_exp.images.codec import Buffer
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.randomness import Purpose, stream


class Request(NamedTuple):
    """A read: the groups after `after`, up to `group`, of a record."""

    record: int
    group: int
    after: int = 0
    epoch: int = 0


class Samples(Protocol):
    """Samples of a record that are in memory: a prefix of it, or a few of its samples."""

    @property
    def ids(self) -> list[str]:
        """All samples of the record, also where only a few are in memory."""
        ...

    @property
    def labels(self) -> dict[str, npt.NDArray[np.int64]]:
        """By name, int64 [N]."""
        ...

    @property
    def group(self) -> int:
        """Scan group that was read."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes that were read for it."""
        ...

    @property
    def replaced(self) -> Mapping[int, int]:
        """By number, samples that are damaged, and which sample of the record stands in for each."""
        ...

    def __len__(self) -> int: ...

    def parts(self, i: int) -> Sequence[Buffer]:
        """Buffers that, laid end to end, are sample i as a file."""
        ...


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
