"""Echoing before augmentation: an epoch's order in which samples come several times. Pure functions.

The echo stage is nothing but this order. Repeats are places in it like all others, so they are decoded afresh
with random numbers of their own, at any number of workers; and the shuffle buffer is no place: a record stays
in memory until its last use, or what is left of it (`held`).
"""

from __future__ import annotations

import numpy as np

from pcr_exp.loading.echo.repeats import Echo, Ints
from pcr_exp.loading.order import EpochOrder


def echoed(order: EpochOrder, echo: Echo, num_levels: int = 0) -> EpochOrder:
    """The order behind the echo stage.

    Args:
        order: The order in front of it, with every sample once.
        echo: Uses of the positions of `order`.
        num_levels: K. The k-th repeat of a sample, up to the K-th, needs a read that continues what was read
            of its record. There is one per record and k, wanted by the first k-th repeat of its samples.
    """
    # A key is (read of `order`, level); sorted, the read that a read continues stands just before it.
    keys = order.reads[echo.items] * (num_levels + 1) + np.minimum(echo.repeats, num_levels)
    keys, first_use, of_positions = np.unique(keys, return_index=True, return_inverse=True)
    bases, levels = np.divmod(keys, num_levels + 1)
    last_use = np.empty(len(keys), dtype=np.int64)
    last_use[of_positions] = np.arange(len(of_positions))  # of repeated indices, numpy keeps the last one
    for level in range(num_levels, 0, -1):
        reads = np.flatnonzero(levels == level)
        last_use[reads - 1] = np.maximum(last_use[reads - 1], last_use[reads])

    windows = np.searchsorted(order.window_reads, bases, side="right") - 1
    needed_from = np.where(levels == 0, _window_starts(windows, first_use)[windows], first_use)
    # No two windows' prefixes are mixed, and none comes after what continues it: first uses are distinct.
    wanted = np.lexsort((bases, needed_from))
    window_reads = _bounds(np.where(levels == 0, windows, len(order.window_reads) + keys)[wanted])
    number = np.empty(len(keys), dtype=np.int64)
    number[wanted] = np.arange(len(keys))
    return EpochOrder(
        records=order.records[bases[wanted]],
        levels=levels[wanted],
        bases=number[np.arange(len(keys)) - (levels > 0)][wanted],
        window_reads=window_reads,
        window_samples=np.append(needed_from[wanted][window_reads[:-1]], len(echo.items)),
        reads=number[of_positions],
        samples=order.samples[echo.items],
        repeats=echo.repeats,
        first_use=first_use[wanted],
        last_use=last_use[wanted],
    )


def _window_starts(windows: Ints, first_use: Ints) -> Ints:
    """The position from which each window is needed, or one after it: windows are opened in turn."""
    starts = np.full(int(windows.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(starts, windows, first_use)
    return np.minimum.accumulate(starts[::-1])[::-1]


def _bounds(stretches: Ints) -> Ints:
    """Where runs of equal numbers begin, and the end of the last one."""
    changes = np.flatnonzero(stretches[1:] != stretches[:-1]) + 1
    return np.concatenate([[0], changes, [len(stretches)]])
