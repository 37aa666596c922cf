"""What comes out of an echo stage: how often each item, and when. Pure functions.

Items are examples or batches, numbered in the order in which they come in. Each is repeated, repeats follow
each other, and then pass through a shuffle buffer, which is emptied at the end of the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Echo:
    """An epoch behind the echo stage, m uses of n items. Both arrays are int64 [m]."""

    items: Ints
    """The item that is used, 0 to n - 1."""
    repeats: Ints
    """How often it was used before in this epoch: 0 is the first use."""


def num_echoed(num_items: int, factor: float) -> int:
    """Uses of `num_items` items: factor x num_items, rounded; a function of counts, so equal on all ranks."""
    return round(factor * num_items)


def echo(num_items: int, factor: float, buffer: int, rng: np.random.Generator) -> Echo:
    """Repeat every item floor(factor) times, and so many of them once more that `num_echoed` are used.

    Which ones is drawn without replacement. (The paper tosses a coin per item, which has the same mean; then
    epochs would differ in length, and so would ranks.)

    Args:
        buffer: Uses that the shuffle buffer holds, at least 1, which leaves the order as it is.
    """
    counts = np.full(num_items, int(factor), dtype=np.int64)
    num_more = num_echoed(num_items, factor) - int(counts.sum())
    counts[rng.choice(num_items, num_more, replace=False)] += 1
    items = np.repeat(np.arange(num_items), counts)
    items = items[through_buffer(len(items), buffer, rng)]
    return Echo(items, earlier_uses(items))


def through_buffer(count: int, buffer: int, rng: np.random.Generator) -> Ints:
    """The order in which `count` items leave a shuffle buffer that is filled before the first one leaves.

    Each leaves a place drawn at random, which the next item takes; at the end, those in the buffer leave in
    random order. int64 [count], a permutation; the item at position i is at most the (i + buffer)-th.
    """
    buffer = min(buffer, count)
    if buffer <= 1:
        return np.arange(count)
    entering = np.arange(buffer, count)
    drawn = rng.integers(buffer, size=len(entering))
    # What leaves a place is what entered it last. So every place has a chain: its first item, then those that
    # entered it. A stable sort by place lays the chains end to end.
    places = np.concatenate([np.arange(buffer), drawn])
    chains = np.argsort(places, kind="stable")
    is_last = np.append(places[chains][1:] != places[chains][:-1], True)
    leaving = np.empty(count - buffer, dtype=np.int64)
    # The item in a chain leaves when its successor enters.
    leaving[chains[1:][~is_last[:-1]] - buffer] = chains[:-1][~is_last[:-1]]
    return np.concatenate([leaving, rng.permutation(chains[is_last])])


def earlier_uses(items: Ints) -> Ints:
    """For every position, how often its item stands before it. int64, the shape of `items`."""
    together = np.argsort(items, kind="stable")
    in_order = items[together]
    is_first = np.append(True, in_order[1:] != in_order[:-1])
    positions = np.arange(len(items))
    starts = np.maximum.accumulate(np.where(is_first, positions, 0))
    uses = np.empty(len(items), dtype=np.int64)
    uses[together] = positions - starts
    return uses
