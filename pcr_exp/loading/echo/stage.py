"""The common part of the data echoing stages: which item is used when, and how long stages take.

Items are samples or batches, numbered in order of arrival. Each is repeated several times in a row. The uses
then pass through a shuffle buffer, which is emptied at the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pcr_exp.config.related_methods import EchoConfig, num_echoed
from pcr_exp.errors import ConfigError
from pcr_exp.loading.lanes import Ints
from pcr_exp.loading.stage import Stage, StageInputs
from pcr_exp.system.randomness import Purpose, stream

if TYPE_CHECKING:
    from pcr_exp.loading.stream import LoaderStats


@dataclass(frozen=True, slots=True, eq=False)
class Echo:
    """An epoch after the echo stage: m uses of n items. Both arrays are int64 [m]."""

    items: Ints
    """The item used, 0 to n - 1."""
    repeats: Ints
    """Earlier uses of the item in this epoch: 0 for the first use."""


def echo(num_items: int, factor: float, buffer: int, rng: np.random.Generator) -> Echo:
    """Use every item floor(factor) times, and some items once more, for `num_echoed` uses in total.

    The extra items are drawn without replacement. (The paper tosses a coin per item. That has the same mean,
    but epochs and ranks would differ in length.)

    Args:
        buffer: Uses that the shuffle buffer holds, at least 1; 1 leaves the order unchanged.
    """
    counts = np.full(num_items, int(factor), dtype=np.int64)
    num_more = num_echoed(num_items, factor) - int(counts.sum())
    counts[rng.choice(num_items, num_more, replace=False)] += 1
    items = np.repeat(np.arange(num_items), counts)
    items = items[through_buffer(len(items), buffer, rng)]
    return Echo(items, earlier_uses(items))


def through_buffer(count: int, buffer: int, rng: np.random.Generator) -> Ints:
    """Return the order in which `count` items leave a shuffle buffer that fills before the first one leaves.

    An item leaves from a place drawn at random, which the next item takes. At the end, the items left in the
    buffer leave in random order. int64 [count], a permutation; position i has an item below i + buffer.
    """
    buffer = min(buffer, count)
    if buffer <= 1:
        return np.arange(count)
    entering = np.arange(buffer, count)
    drawn = rng.integers(buffer, size=len(entering))
    # The item that leaves a place is the last one that entered it. So every place has a chain: its first
    # item, then those that entered later. A stable sort by place lays the chains end to end.
    slots = np.concatenate([np.arange(buffer), drawn])
    chains = np.argsort(slots, kind="stable")
    is_last = np.append(slots[chains][1:] != slots[chains][:-1], True)
    leaving = np.empty(count - buffer, dtype=np.int64)
    # An item leaves when its successor in the chain enters.
    leaving[chains[1:][~is_last[:-1]] - buffer] = chains[:-1][~is_last[:-1]]
    return np.concatenate([leaving, rng.permutation(chains[is_last])])


def earlier_uses(items: Ints) -> Ints:
    """Return how often the item at each position occurs before it. int64, the shape of `items`."""
    together = np.argsort(items, kind="stable")
    in_order = items[together]
    is_first = np.append(True, in_order[1:] != in_order[:-1])
    positions = np.arange(len(items))
    starts = np.maximum.accumulate(np.where(is_first, positions, 0))
    uses = np.empty(len(items), dtype=np.int64)
    uses[together] = positions - starts
    return uses


class EchoStage(Stage):
    """A stage that repeats items (samples or batches) and shuffles their uses."""

    def __init__(self, config: EchoConfig, inputs: StageInputs, *, num_items: int) -> None:
        """`num_items` samples or batches arrive per epoch and micro-batch index.

        Raises:
            ConfigError: the buffer would hold more than an epoch.
        """
        super().__init__(inputs)
        self.num_uses = num_echoed(num_items, config.factor)
        """Items after echoing, per epoch and micro-batch index."""
        if config.buffer > self.num_uses:
            raise ConfigError(
                f"echo.buffer={config.buffer}: wanted at most {self.num_uses}, the samples of an epoch "
                f"({inputs.num_samples} fresh ones x echo.factor={config.factor:g}); the buffer is emptied "
                "at the end of an epoch."
            )
        self._config = config
        self._slots = inputs.slots

        def echo_of(epoch: int, slot: int) -> Echo:
            return echo(
                num_items, config.factor, config.buffer, stream(inputs.seed, Purpose.ECHO, epoch, slot)
            )

        self._echo_of = echo_of
        # Called at the start of a stream and by the stages after decoding, which have one micro-batch.
        self._echo: Callable[[int], Echo] = lru_cache(maxsize=3)(
            lambda epoch: echo_of(epoch, inputs.slots[0])
        )


def stage_columns(
    echo: EchoConfig, stats: LoaderStats, *, num_workers: int, bytes_read: int, counters: Mapping[str, float]
) -> dict[str, float | None]:
    """Return a row's columns for the time per image of the stages around the echo, excluding waits.

    Before the echo: reading, and with echo=example_after and batch also decoding. After it: training,
    and with echo=example_before and none also decoding, in parallel if there are workers. Of overlapping
    stages, the slower one counts. Reading is timed only while reads are in flight, which excludes pauses
    after enough read-ahead. If latency is the limit rather than bandwidth, less read-ahead makes reading
    slower.

    Args:
        num_workers: Decoding processes.
        bytes_read: Bytes that storage delivered in `stats.read_s`.
        counters: A row's `samples_seen`, `samples_trained`, `record_bytes`, `train_s`.

    Returns:
        `upstream_s_per_sample`: seconds per fresh image before the echo. `downstream_s_per_sample`:
        seconds per image trained on after it. `upstream_ratio`: R, the first divided by the second (Choi et
        al. 2019). None where nothing was measured yet.
    """
    bytes_per_fresh = _over(counters["record_bytes"], counters["samples_seen"])
    read_s = _times(_over(stats.read_s, bytes_read), bytes_per_fresh)
    decode_s = _over(stats.decode_s, stats.num_decoded * max(1, num_workers))
    train_s = _over(counters["train_s"], counters["samples_trained"])
    upstream_s, downstream_s = read_s, train_s
    if echo.repeats_decoded:
        upstream_s = _slower(read_s, decode_s)
    elif num_workers == 0:
        downstream_s = None if train_s is None or decode_s is None else train_s + decode_s
    else:
        downstream_s = _slower(train_s, decode_s)
    return {
        "upstream_s_per_sample": upstream_s,
        "downstream_s_per_sample": downstream_s,
        "upstream_ratio": _over(upstream_s, downstream_s),
    }


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _times(a: float | None, b: float | None) -> float | None:
    return a * b if a is not None and b is not None else None


def _slower(a: float | None, b: float | None) -> float | None:
    return max(a, b) if a is not None and b is not None else None
