"""Several splits as one: how an epoch is laid out of them. Pure functions of (seed, epoch, slot).

An epoch takes the same number of images of each source, whatever the source holds. Every source is gone
through in orders of its own (`lanes`), one pass after the other, and an epoch goes on where the last one
ended. So each image comes once in a pass. Where an epoch holds several passes of a source, each reads its
records again.
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
"""Positions that are laid out at a time."""


@dataclass(frozen=True, slots=True)
class MixedSource:
    """A split, or a selection of one, in a mixture."""

    first_record: int
    """Records of all sources are numbered one after the other: the number of its first."""
    record_sizes: Sequence[int]
    """Samples in each of its records; of a selection as `Selection.sizes`."""
    num_images: int
    """That an epoch takes of it."""
    selection: Selection | None = None

    def records(self) -> Ints:
        """[number of record sizes] their numbers in the mixture."""
        own = np.arange(len(self.record_sizes)) if self.selection is None else self.selection.records
        return self.first_record + own

    def samples(self, laid_out: SampleIndices) -> Ints:
        """The number in its record of each sample."""
        return laid_out.samples if self.selection is None else self.selection.locate(laid_out).samples


class Mixture:
    """The images that a loader uses: of each source as many per epoch as `num_images` says."""

    def __init__(self, sources: Mapping[str, MixedSource]) -> None:
        self._sources = list(sources.values())
        self.has_selections = any(source.selection is not None for source in self._sources)
        self.sizes = [size for source in self._sources for size in source.record_sizes]
        """Samples that are used of each record, but of those that hold none of a selection."""
        used = {name: source.selection for name, source in sources.items() if source.selection is not None}
        self.identity: dict[str, Any] = {
            "mixture": [[name, source.num_images] for name, source in sources.items()],
            "selections": {name: selection.fingerprint for name, selection in used.items()},
        }
        """What must be equal where a state goes on: the order of sources too, which numbers them."""

    def __len__(self) -> int:
        return sum(source.num_images for source in self._sources)

    def num_held(self, share: RankShare, num_lanes: int, window: int) -> int:
        """The most records that a process's lanes use at once; `num_lanes` are those of one source."""
        num_own = num_lanes // share.num_slots * len(share.slots)
        held = 0
        for source in self._sources:
            # Slots come to a source's next pass one after the other; one slot ends a pass before the next.
            passes = 2 + source.num_images // sum(source.record_sizes) if len(share.slots) > 1 else 1
            held += num_own * window + (num_own - 1) * passes
        return held

    def order(
        self, epoch: int, share: RankShare, *, batch_size: int, seed: int, num_lanes: int, window: int
    ) -> StreamedOrder:
        """The order of a process in an epoch; records that several passes use are there for each of them."""
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
        # Each pass of a source has numbers of its own for its records.
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
        """Of every source, the first sample of a slot's endless order that the epoch uses, and how many."""
        ends = np.cumsum([0, *(source.num_images for source in self._sources)])
        # Slots take turns in the sources laid end to end: all get as many, and as even a share as can be.
        turns = -((slot - ends) // share.num_slots)
        for source, (first, end) in zip(self._sources, pairwise(turns.tolist()), strict=True):
            yield source, epoch * (end - first), end - first


class _Passes:
    """A chunk of a slot's endless order of a source."""

    numbered_from = 0
    """Added to the numbers of its records, which are `num_records` more in each pass."""

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
        """From the first sample of the chunk on, without an end."""
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
    """The number that was typed."""
    return Fraction(repr(float(share)))


def epoch_size(epoch: str | int, num_images: Sequence[int], shares: Sequence[Fraction]) -> int:
    """Images of an epoch of sources with these images and shares; `epoch` is as `pcr_exp.mix` says."""
    passes = [num * sum(shares) / share for num, share in zip(num_images, shares, strict=True)]
    if isinstance(epoch, int):
        return epoch
    return math.ceil(max(passes)) if epoch == "largest" else math.floor(min(passes))


def source_counts(shares: Mapping[str, Fraction], epoch: int, multiple_of: int = 1) -> dict[str, int]:
    """By source, the images of an epoch, whose number is rounded down to a multiple.

    Raises:
        ConfigError: none is left, or a source's share is less than one.
    """
    num_images = epoch // multiple_of * multiple_of
    wanted = f"at least {multiple_of} images, so that all processes have whole batches or as many each"
    require(num_images > 0, "epoch", epoch, wanted)
    counts = dict(zip(shares, epoch_counts(list(shares.values()), num_images), strict=True))
    without = {name: float(shares[name]) for name, num in counts.items() if num == 0}
    wanted = f"larger ones, or a longer epoch: of {num_images} images these sources have none"
    require(not without, "shares", without, wanted)
    return counts


def epoch_counts(shares: Sequence[Fraction], num_images: int) -> list[int]:
    """How many of `num_images` each source gives: by largest remainder, the first of equal ones first."""
    exact = [share * num_images / sum(shares) for share in shares]
    counts = [int(wanted) for wanted in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: num_images - sum(counts)]:
        counts[i] += 1
    return counts


def interleaved(counts: Sequence[int], rng: np.random.Generator) -> Ints:
    """[sum of counts] which source comes when: each of its k images somewhere in a k-th of the epoch.

    So every batch has about its share of each source.
    """
    times = np.concatenate([(np.arange(num) + rng.random(num)) / max(1, num) for num in counts])
    return np.repeat(np.arange(len(counts)), counts)[np.argsort(times, kind="stable")]


def _mixed(sources: Sequence[_Passes], seed: int, epoch: int, slot: int) -> Iterator[SampleIndices]:
    """What a slot uses in an epoch."""
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
