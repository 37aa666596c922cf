"""The common part of the stages of data echoing: which item is used when, and how long stages take.

Items are samples or batches, numbered in the order in which they come in. Each is repeated, repeats follow
each other, and then pass through a shuffle buffer, which is emptied at the end of the epoch.
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
    """An epoch behind the echo stage, m uses of n items. Both arrays are int64 [m]."""

    items: Ints
    """The item that is used, 0 to n - 1."""
    repeats: Ints
    """How often it was used before in this epoch: 0 is the first use."""


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
    # The item that leaves a slot is the one that entered it last. So every slot has a chain: its first item,
    # then those that entered it. A stable sort by slot lays the chains end to end.
    slots = np.concatenate([np.arange(buffer), drawn])
    chains = np.argsort(slots, kind="stable")
    is_last = np.append(slots[chains][1:] != slots[chains][:-1], True)
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


class EchoStage(Stage):
    """A stage that repeats items, samples or batches, and shuffles their uses."""

    def __init__(self, config: EchoConfig, inputs: StageInputs, *, num_items: int) -> None:
        """`num_items` samples or batches come in per epoch and slot.

        Raises:
            ConfigError: the buffer would hold more than an epoch.
        """
        super().__init__(inputs)
        self.num_uses = num_echoed(num_items, config.factor)
        """Items that go out, per epoch and slot."""
        if config.buffer > self.num_uses:
            raise ConfigError(
                f"echo.buffer={config.buffer}: wanted at most {self.num_uses}, the samples of an epoch ("
                f"{inputs.num_samples} fresh ones x echo.factor={config.factor:g}); it is emptied at its end."
            )
        self._config = config
        self._slots = inputs.slots

        def echo_of(epoch: int, slot: int) -> Echo:
            return echo(
                num_items, config.factor, config.buffer, stream(inputs.seed, Purpose.ECHO, epoch, slot)
            )

        self._echo_of = echo_of
        # Asked for by both the start of a stream and the stages behind decoding, which have one slot.
        self._echo: Callable[[int], Echo] = lru_cache(maxsize=3)(
            lambda epoch: echo_of(epoch, inputs.slots[0])
        )


def stage_columns(
    echo: EchoConfig, stats: LoaderStats, *, num_workers: int, bytes_read: int, counters: Mapping[str, float]
) -> dict[str, float | None]:
    """The columns of a row that say how long a stage takes per image, had it never to wait for the other.

    In front of the echo: reading, and with echo=example_after and batch also decoding. Behind it: training,
    and with echo=example_before and none also decoding, in parallel if there are workers. Of stages that
    overlap, the slower one counts. Reading is timed while reads are in flight, so that its pauses, when
    enough has been read ahead, are not in it; where latency is the limit and not bandwidth, it is slower the
    less it reads ahead.

    Args:
        num_workers: Decoding processes.
        bytes_read: What storage delivered in `stats.read_s`.
        counters: A row's `samples_seen`, `samples_trained`, `record_bytes`, `train_s`.

    Returns:
        `upstream_s_per_sample`: seconds per fresh image in front. `downstream_s_per_sample`: seconds per
        image trained on, behind. `upstream_ratio`: R = the first over the second (Choi et al. 2019). None
        where nothing was measured yet.
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
