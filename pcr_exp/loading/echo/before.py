"""`example_before`: samples are repeated as they were read; each repeat is decoded and augmented afresh.

Reads stay in use longer. Repeats may continue them to higher scan groups; unneeded samples are trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.errors import ConfigError
from pcr_exp.images.codec import Buffer
from pcr_exp.images.decode import WHOLE
from pcr_exp.loading.echo.stage import Echo, EchoStage
from pcr_exp.loading.lanes import Ints
from pcr_exp.loading.order import EpochOrder, Order, SampleSequence, epoch_order
from pcr_exp.loading.reads import Reads
from pcr_exp.loading.stage import StageInputs
from pcr_exp.records.groups import Extension, RecordPrefix
from pcr_exp.records.index import RecordIndex


class EchoBefore(EchoStage):
    """Repeats are ordinary positions in the order of an epoch, which becomes longer.

    So they are decoded afresh with their own random numbers, for any number of workers. The shuffle buffer
    stores nothing itself: a record, or what is left of it, stays in memory until its last use (`EchoReads`).
    """

    def __init__(self, config: EchoConfig, inputs: StageInputs) -> None:
        """Raises ConfigError or RecordError as `EchoStage` and `check_repeat_groups` do."""
        check_repeat_groups(config, inputs.index, inputs.first_group)
        super().__init__(config, inputs, num_items=inputs.num_samples)
        self.num_batches = -(-self.num_uses // inputs.batch_size)
        self.num_buffered_samples = config.buffer * len(inputs.slots) if config.buffer > 1 else 0
        self.highest_group = max(config.repeat_groups, default=0)

    def order(self, fresh: Sequence[SampleSequence], epoch: int) -> EpochOrder:
        """Return the order in which a process reads; samples occur in it several times."""
        uses = [
            echoed(uses, self._echo_of(epoch, slot)) for slot, uses in zip(self._slots, fresh, strict=True)
        ]
        return epoch_order(uses, self._batch_size, self._config.repeat_groups)

    def reads(self, order: Order) -> Reads:
        """Return the reads of that order, which repeats may continue."""
        assert isinstance(order, EpochOrder)
        return EchoReads(order)


def echoed(fresh: SampleSequence, echo: Echo) -> SampleSequence:
    """Return the uses of a micro-batch index with an echo before decoding. Items of `echo` index `fresh`."""
    return SampleSequence(fresh.records[echo.items], fresh.samples[echo.items], echo.repeats)


def check_repeat_groups(config: EchoConfig, index: RecordIndex, first_group: int) -> None:
    """Refuse repeat groups that would read nothing more.

    Args:
        first_group: The scan group that is read first; for a policy, its lowest candidate.

    Raises:
        ConfigError: the records have only one group, or `first_group` already includes a repeat group.
        RecordError: the records lack a group.
    """
    groups = config.repeat_groups
    if groups and index.encoding == "baseline":
        raise ConfigError(
            f"echo.repeat_groups={groups}: wanted none with scan=baseline, whose images are read whole. "
            "Choose scan=group_1 to scan=group_9."
        )
    if groups and groups[0] <= first_group:
        raise ConfigError(
            f"echo.repeat_groups={groups}: wanted scan groups above {first_group}, which is read first: "
            "these repeats would find all their bytes in memory. Lower scan.group, or leave them out."
        )
    for group in groups:
        index.check_group(group)


@dataclass(frozen=True, slots=True)
class SomeSamples(RecordPrefix):
    """Some samples of a record prefix, by their numbers within the record."""

    files: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, prefix: RecordPrefix, samples: Iterable[int]) -> SomeSamples:
        """Copy these samples."""
        files = {sample: b"".join(prefix.parts(sample)) for sample in samples}
        told = (prefix.ids, prefix.labels, prefix.group, prefix.num_bytes)
        return cls(*told, (), WHOLE, prefix.replaced, files=files)

    def __len__(self) -> int:
        return len(self.files)

    def parts(self, i: int, group: int | None = None) -> Sequence[Buffer]:  # noqa: ARG002
        """Return sample i of the record, as in the prefix. Raises KeyError if it was not copied."""
        return (self.files[i],)


class EchoReads(Reads):
    """The reads of an epoch that uses samples several times."""

    def __init__(self, order: EpochOrder) -> None:
        super().__init__(order)
        self._whole = order

    def open(self, read: int, result: RecordPrefix | Extension) -> tuple[int, bool]:
        """Start using a prefix, or the continuation of one."""
        if isinstance(result, RecordPrefix):
            return super().open(read, result)
        prefix = self._in_use[int(self._whole.bases[read])]
        self._in_use[read] = prefix.extended(result)  # with continuations, records are never trimmed
        return result.num_bytes, False

    def release(self, read: int, position: int) -> None:
        """Drop a read and those that it continues, if `position` is the last one that uses them."""
        while self._whole.last_use[read] == position:
            super().release(read, position)
            base = int(self._whole.bases[read])
            if base == read:
                return
            read = base

    def trim(self, position: int) -> None:
        """Release samples that the positions from `position` on do not need.

        A record's needed samples are copied once they are at most half of what is left of it. So at most
        twice the needed samples stay in memory, and each is copied about once. With continuations, records
        are not trimmed. Without repeats, trimming is not needed: records are soon released as a whole.
        """
        if not self._whole.repeats.any() or self._whole.continuations.any():
            return
        for read, samples in self._in_use.items():
            left = self._samples_left(read, position)
            if 2 * len(left) <= len(samples):
                self._in_use[read] = SomeSamples.of(samples, left.tolist())

    def _samples_left(self, read: int, position: int) -> Ints:
        by_read, starts = self._positions
        positions = by_read[starts[read] : starts[read + 1]]
        return np.unique(self._whole.samples[positions[np.searchsorted(positions, position) :]])

    @cached_property
    def _positions(self) -> tuple[Ints, Ints]:
        """The positions sorted by the read they use, and the start of each read's positions."""
        reads = self._whole.reads
        by_read = np.argsort(reads, kind="stable")
        return by_read, np.searchsorted(reads[by_read], np.arange(len(self._whole.records) + 1))
