"""`example_before`: samples are repeated as they were read, each repeat is decoded and augmented afresh.

A read is used for longer then: continued for repeats that show more, and trimmed to what will be used again.
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
    """Repeats are positions like all others in the order of an epoch, which is longer for it.

    So they are decoded afresh with random numbers of their own, at any number of workers; and the shuffle
    buffer is no place: a record stays in memory until its last use, or what is left of it (`EchoReads`).
    """

    def __init__(self, config: EchoConfig, inputs: StageInputs) -> None:
        """Raises ConfigError or RecordError as `EchoStage` and `check_repeat_groups` do."""
        check_repeat_groups(config, inputs.index, inputs.first_group)
        super().__init__(config, inputs, num_items=inputs.num_samples)
        self.num_batches = -(-self.num_uses // inputs.batch_size)
        self.num_kept_in_use = config.buffer * len(inputs.slots) if config.buffer > 1 else 0
        self.highest_group = max(config.repeat_groups, default=0)

    def order(self, fresh: Sequence[SampleSequence], epoch: int) -> EpochOrder:
        """The order in which a process reads; samples come in it several times."""
        uses = [
            echoed(uses, self._echo_of(epoch, slot)) for slot, uses in zip(self._slots, fresh, strict=True)
        ]
        return epoch_order(uses, self._batch_size, self._config.repeat_groups)

    def reads(self, order: Order) -> Reads:
        """The reads of that order, which repeats may continue."""
        assert isinstance(order, EpochOrder)
        return EchoReads(order)


def echoed(fresh: SampleSequence, echo: Echo) -> SampleSequence:
    """The samples that a slot uses with an echo before decoding: `echo` uses positions in `fresh`."""
    return SampleSequence(fresh.records[echo.items], fresh.samples[echo.items], echo.repeats)


def check_repeat_groups(config: EchoConfig, index: RecordIndex, first_group: int) -> None:
    """Refuse repeats that have nothing to read on to.

    Args:
        first_group: The scan group that is read first; of those that a policy chooses from, the lowest.

    Raises:
        ConfigError: the records have one group only, or `first_group` holds what a repeat asks for.
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
    """A few samples of a record prefix, by their numbers in the record."""

    files: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, prefix: RecordPrefix, samples: Iterable[int]) -> SomeSamples:
        """These samples, copied."""
        files = {sample: b"".join(prefix.parts(sample)) for sample in samples}
        told = (prefix.ids, prefix.labels, prefix.group, prefix.num_bytes)
        return cls(*told, (), WHOLE, prefix.replaced, files=files)

    def __len__(self) -> int:
        return len(self.files)

    def parts(self, i: int, group: int | None = None) -> Sequence[Buffer]:  # noqa: ARG002
        """Sample i of the record, as the prefix gave it. Raises KeyError if it is not one of the few."""
        return (self.files[i],)


class EchoReads(Reads):
    """The reads of an epoch in which samples come several times."""

    def __init__(self, order: EpochOrder) -> None:
        super().__init__(order)
        self._whole = order

    def open(self, read: int, result: RecordPrefix | Extension) -> tuple[int, bool]:
        """Begin to use a prefix, or one that was continued."""
        if isinstance(result, RecordPrefix):
            return super().open(read, result)
        prefix = self._in_use[int(self._whole.bases[read])]
        self._in_use[read] = prefix.extended(result)  # records whose repeats read on stay whole
        return result.num_bytes, False

    def release(self, read: int, position: int) -> None:
        """Forget a read, and those that it continues, after the last position that uses them."""
        while self._whole.last_use[read] == position:
            super().release(read, position)
            base = int(self._whole.bases[read])
            if base == read:
                return
            read = base

    def trim(self, position: int) -> None:
        """Let go of samples that the positions from `position` on do not need.

        A record is copied when half of what is left of it is not needed any more: so at most twice the
        samples that are needed stay in memory, and each is copied about once. Records whose repeats read on
        stay whole. Without repeats, records are let go of in time by themselves.
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
        """The positions by the read that they use, and where each read's begin."""
        reads = self._whole.reads
        by_read = np.argsort(reads, kind="stable")
        return by_read, np.searchsorted(reads[by_read], np.arange(len(self._whole.records) + 1))
