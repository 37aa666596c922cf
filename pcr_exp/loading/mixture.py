"""Mixing several splits: how an epoch is laid out. Pure functions of (seed, epoch, micro-batch index).

Every epoch takes a fixed number of images from each source, however many the source holds. Each source is
traversed in its own orders (`lanes`), pass after pass, and an epoch continues where the last one ended. So
each image occurs once per pass. If an epoch contains several passes over a source, each reads its records
again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np

from pcr_exp.config.check import require
from pcr_exp.loading.lanes import EpochLanes, Ints, SampleIndices, laid_end_to_end
from pcr_exp.loading.order import RankShare, StreamedOrder
from pcr_exp.loading.selection import Selection
from pcr_exp.system.randomness import Purpose, stream

_ROUGHLY = 2**14
"""Positions laid out at a time."""


@dataclass(frozen=True, slots=True)
class MixedSource:
    """A split, or a selection of one, in a mixture."""

    first_record: int
    """Number of the source's first record; records of all sources are numbered consecutively."""
    record_sizes: Sequence[int]
    """Samples in each of its records; for a selection, `Selection.sizes`."""
    num_images: int
    """Images that an epoch takes from the source."""
    selection: Selection | None = None

    def records(self) -> Ints:
        """Return its records' numbers in the mixture, [len(record_sizes)]."""
        own = np.arange(len(self.record_sizes)) if self.selection is None else self.selection.records
        return self.first_record + own

    def samples(self, laid_out: SampleIndices) -> Ints:
        """Return each sample's number within its record."""
        return laid_out.samples if self.selection is None else self.selection.locate(laid_out).samples


class Mixture:
    """The images that a loader uses: `num_images` of each source per epoch."""

    def __init__(self, sources: Mapping[str, MixedSource]) -> None:
        self._sources = list(sources.values())
        self.has_selections = any(source.selection is not None for source in self._sources)
        self.sizes = [size for source in self._sources for size in source.record_sizes]
        """Samples used per record; records without a selected image are left out."""
        used = {name: source.selection for name, source in sources.items() if source.selection is not None}
        self.identity: dict[str, Any] = {
            "mixture": [[name, source.num_images] for name, source in sources.items()],
            "selections": {name: selection.fingerprint for name, selection in used.items()},
        }
        """Must match when a state is resumed, including the order of the sources, which numbers them."""

    def __len__(self) -> int:
        return sum(source.num_images for source in self._sources)

    def num_held(self, share: RankShare, num_lanes: int, window: int) -> int:
        """Return the maximum number of records in use at once by a process; `num_lanes` is per source."""
        num_own = num_lanes // share.num_slots * len(share.slots)
        held = 0
        for source in self._sources:
            # Several micro-batch indices enter a new pass one by one; a single one ends each pass first.
            passes = 2 + source.num_images // sum(source.record_sizes) if len(share.slots) > 1 else 1
            of_lanes = num_own * window + (num_own - 1) * passes
            held += min(of_lanes, passes * len(source.record_sizes))
        return held

    def order(
        self, epoch: int, share: RankShare, *, batch_size: int, seed: int, num_lanes: int, window: int
    ) -> StreamedOrder:
        """Return the order of a process in an epoch; a record used by several passes is read for each."""
        seeds = [
            int(stream(seed, Purpose.MIXTURE, place).integers(2**63)) for place in range(len(self._sources))
        ]
        slots = [
            [
                _Passes(source, first, num, seed=own_seed, slot=slot, share=share, lanes=(num_lanes, window))
                for own_seed, (source, first, num) in zip(
                    seeds, self._chunks(epoch, slot, share), strict=True
                )
            ]
            for slot in share.slots
        ]
        # Each pass of a source has its own record numbers.
        num_records, stored = 0, []
        for of_slots in zip(*slots, strict=True):
            first = min(passes.first_pass for passes in of_slots)
            end = max(passes.end_pass for passes in of_slots)
            for passes in of_slots:
                passes.numbered_from = num_records - first * passes.num_records
            records = of_slots[0].source.records()
            stored.append(np.tile(records, end - first))
            num_records += len(stored[-1])
        chunks = [
            partial(_mixed, passes, seed, epoch, slot)
            for passes, slot in zip(slots, share.slots, strict=True)
        ]
        return StreamedOrder(chunks, num_records, batch_size, stored=np.concatenate(stored))

    def _chunks(self, epoch: int, slot: int, share: RankShare) -> Iterator[tuple[MixedSource, int, int]]:
        """Yield each source with the chunk of its endless order for `slot`: first sample and length."""
        ends = np.cumsum([0, *(source.num_images for source in self._sources)])
        # Micro-batch indices take turns over all sources: equal totals, and shares as even as possible.
        turns = -((slot - ends) // share.num_slots)
        for source, (first, end) in zip(self._sources, pairwise(turns.tolist()), strict=True):
            yield source, epoch * (end - first), end - first


class _Passes:
    """A chunk of the endless order of a source for one micro-batch index."""

    numbered_from = 0
    """Offset of its record numbers, which rise by `num_records` in each pass."""

    def __init__(
        self,
        source: MixedSource,
        first: int,
        num: int,
        *,
        seed: int,
        slot: int,
        share: RankShare,
        lanes: tuple[int, int],
    ) -> None:
        self.source, self.num = source, num
        self.num_records = len(source.record_sizes)
        per_pass = share.samples_per_slot(sum(source.record_sizes))
        self.first_pass, self._skipped = divmod(first, per_pass)
        self.end_pass = -(-(first + num) // per_pass)
        self._seed, self._slot, self._num_slots = seed, slot, share.num_slots
        self._num_lanes, self._window = lanes

    def __iter__(self) -> Iterator[SampleIndices]:
        """Yield the samples from the first of the chunk on, without end."""
        skipped = self._skipped
        for number in count(self.first_pass):
            lanes = EpochLanes(
                self.source.record_sizes,
                seed=self._seed,
                epoch=number,
                num_lanes=self._num_lanes,
                window=self._window,
            )
            numbered_from = self.numbered_from + number * self.num_records
            for places in lanes.chunks(self._slot, self._num_slots):
                rest = SampleIndices(*(column[skipped:] for column in places))
                skipped = max(0, skipped - len(places.records))
                yield SampleIndices(numbered_from + rest.records, self.source.samples(rest))


def exact_share(share: float) -> Fraction:
    """Return the decimal number that was typed, exactly."""
    return Fraction(repr(float(share)))


def epoch_size(epoch: str | int, num_images: Sequence[int], shares: Sequence[Fraction]) -> int:
    """Return the images per epoch for sources of these sizes and shares; `epoch` as in `pcr_exp.mix`."""
    passes = [num * sum(shares) / share for num, share in zip(num_images, shares, strict=True)]
    if isinstance(epoch, int):
        return epoch
    return math.ceil(max(passes)) if epoch == "largest" else math.floor(min(passes))


def source_counts(shares: Mapping[str, Fraction], epoch: int, multiple_of: int = 1) -> dict[str, int]:
    """Return an epoch's images by source; the total is rounded down to a multiple of `multiple_of`.

    Raises:
        ConfigError: no image is left, or a source gets none.
    """
    num_images = epoch // multiple_of * multiple_of
    wanted = (
        f"at least {multiple_of} images, so that every process has the same number of images or of whole "
        "batches"
    )
    require(num_images > 0, "epoch", epoch, wanted)
    counts = dict(zip(shares, epoch_counts(list(shares.values()), num_images), strict=True))
    without = {name: float(shares[name]) for name, num in counts.items() if num == 0}
    wanted = f"larger ones, or a longer epoch: these sources get none of its {num_images} images"
    require(not without, "shares", without, wanted)
    return counts


def epoch_counts(shares: Sequence[Fraction], num_images: int) -> list[int]:
    """Divide `num_images` among sources by the largest remainder method; ties go to the first."""
    exact = [share * num_images / sum(shares) for share in shares]
    counts = [int(wanted) for wanted in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: num_images - sum(counts)]:
        counts[i] += 1
    return counts


def interleaved(counts: Sequence[int], rng: np.random.Generator) -> Ints:
    """Return the source of each position, [sum of counts]: one of its k images in each k-th of the epoch.

    So every batch has about the right share of each source.
    """
    times = np.concatenate([(np.arange(num) + rng.random(num)) / max(1, num) for num in counts])
    return np.repeat(np.arange(len(counts)), counts)[np.argsort(times, kind="stable")]


def _mixed(sources: Sequence[_Passes], seed: int, epoch: int, slot: int) -> Iterator[SampleIndices]:
    """Yield the samples of a micro-batch index in an epoch."""
    turns = interleaved([source.num for source in sources], stream(seed, Purpose.MIXTURE, epoch, slot))
    to_come = [iter(source) for source in sources]
    held = [SampleIndices(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)) for _ in sources]
    for start in range(0, len(turns), _ROUGHLY):
        turn = turns[start : start + _ROUGHLY]
        mixed = SampleIndices(np.empty_like(turn), np.empty_like(turn))
        for i in range(len(sources)):
            positions = np.flatnonzero(turn == i)
            chunks, num_held = [held[i]], len(held[i].records)
            while num_held < len(positions):
                chunks.append(next(to_come[i]))
                num_held += len(chunks[-1].records)
            places = laid_end_to_end(chunks)
            for column, own in zip(mixed, places, strict=True):
                column[positions] = own[: len(positions)]
            held[i] = SampleIndices(*(column[len(positions) :] for column in places))
        yield mixed
