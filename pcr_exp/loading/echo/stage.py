"""Where a loader's echo stage stands, and what that makes of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from pcr_exp.config.echo import EchoConfig
from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.echo.after import batch_start, echo_batches, echo_examples, example_start
from pcr_exp.loading.echo.held import EchoReads
from pcr_exp.loading.echo.repeats import Echo, echo, num_echoed
from pcr_exp.loading.order import EpochOrder, Span, Uses, epoch_order
from pcr_exp.loading.stage import Stage
from pcr_exp.loading.tasks import Reads
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.randomness import Purpose, stream


def num_examples(config: EchoConfig, num_samples: int) -> int:
    """Samples that an epoch of `num_samples` fresh ones is cut into batches from."""
    return num_samples if config.name in ("none", "batch") else num_echoed(num_samples, config.factor)


def open_stage(
    config: EchoConfig | None,
    index: RecordIndex,
    *,
    first_group: int,
    num_samples: int,
    batch_size: int,
    seed: int,
    slots: Sequence[int],
) -> Stage:
    """The stage that a configuration asks for: the plain way, or an echo.

    Args:
        config: None for the plain way.
        index: Of the records.
        first_group: The scan group that is read first; of those that a policy chooses from, the lowest.
        num_samples: Fresh ones, per epoch and slot.
        batch_size: Images of a slot's batch.
        seed: Of the run.
        slots: Those of this process.

    Raises:
        ConfigError, RecordError: as `check_repeat_groups` and `EchoStage` raise them.
    """
    if config is None or config.name == "none":
        return Stage(num_samples=num_samples, batch_size=batch_size)
    check_repeat_groups(config, index, first_group)
    return EchoStage(config, num_samples=num_samples, batch_size=batch_size, seed=seed, slots=slots)


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


class EchoStage(Stage):
    """What a process's batches are made of where samples or batches are repeated."""

    def __init__(
        self, config: EchoConfig, *, num_samples: int, batch_size: int, seed: int, slots: Sequence[int]
    ) -> None:
        """`num_samples` are fresh, per epoch and slot; `slots` are those of this process.

        Raises:
            ConfigError: the buffer would hold more than an epoch, or several slots' batches would come
                through one stage behind decoding.
        """
        if config.name in ("example_after", "batch") and len(slots) > 1:
            raise ConfigError(
                f"echo={config.name} with {len(slots)} batches of this process in a global batch: it repeats "
                "what has been decoded, of one stream of batches per process. Start as many processes as a "
                "global batch has batches, raise training.batch_size, or use echo=example_before."
            )
        super().__init__(num_samples=num_samples, batch_size=batch_size)
        repeats_batches = config.name == "batch"
        num_items = self.num_batches if repeats_batches else num_samples
        num_uses = num_echoed(num_items, config.factor)
        if config.buffer > num_uses:
            raise ConfigError(
                f"echo.buffer={config.buffer}: wanted at most {num_uses}, the samples of an epoch "
                f"({num_samples} fresh ones x echo.factor={config.factor:g}); it is emptied at its end."
            )
        self.num_batches = num_uses if repeats_batches else -(-num_uses // batch_size)
        buffers = config.name == "example_before" and config.buffer > 1
        self.num_kept_in_use = config.buffer * len(slots) if buffers else 0
        self.highest_group = max(config.repeat_groups, default=0)
        self._config = config
        self._slots = slots

        def echo_of(epoch: int, slot: int) -> Echo:
            rng = stream(seed, Purpose.ECHO, epoch, slot)
            return echo(num_items, config.factor, config.buffer, rng)

        self._echo_of = echo_of
        # Asked for by both the start of a stream and the stages behind decoding, which have one slot.
        self._echo: Callable[[int], Echo] = lru_cache(maxsize=3)(lambda epoch: echo_of(epoch, slots[0]))

    def order(self, fresh: Sequence[Uses], epoch: int) -> EpochOrder:
        """The order in which a process reads; in front of decoding, samples come in it several times.

        Repeats are positions like all others, so they are decoded afresh with random numbers of their own, at
        any number of workers; and the shuffle buffer is no place: a record stays in memory until its last
        use, or what is left of it (`held`).
        """
        if self._config.name != "example_before":
            return super().order(fresh, epoch)
        uses = [
            echoed(uses, self._echo_of(epoch, slot)) for slot, uses in zip(self._slots, fresh, strict=True)
        ]
        return epoch_order(uses, self._batch_size, len(self._config.repeat_groups))

    def reads(self, records: RecordSet, order: EpochOrder) -> Reads:
        """The reads of that order, which repeats may continue."""
        return EchoReads(records, order, self._config.repeat_groups)

    def decoded_span(self, span: Span) -> Span:
        """The span of decoded batches that a span of the loader's batches is made of.

        Raises:
            LoaderError: epochs shall end early, and the echo stage stands behind decoding.
        """
        starts = {"example_after": example_start, "batch": batch_start}
        start = starts.get(self._config.name)
        if start is None or span.first_epoch >= span.num_epochs:
            return span
        if span.end_batch is not None:
            raise LoaderError(
                f"end_batch={span.end_batch}: wanted none with echo={self._config.name}, whose batches are "
                "made of whole epochs. Open a loader without echo."
            )
        first_batch = start(self._echo(span.first_epoch), span.first_batch, self._batch_size)
        return Span(span.first_epoch, first_batch, span.num_epochs)

    def batches(self, decoded: Iterator[Batch], span: Span) -> Iterator[Batch]:
        """The loader's batches in `span`, of those decoded in `decoded_span(span)`."""
        if self._config.name == "example_after":
            return echo_examples(decoded, self._echo, span, self._batch_size)
        if self._config.name == "batch":
            return echo_batches(decoded, self._echo, span)
        return decoded


def echoed(fresh: Uses, echo: Echo) -> Uses:
    """What a slot uses behind an echo in front of decoding: `echo` gives uses of the positions of `fresh`."""
    return Uses(fresh.records[echo.items], fresh.samples[echo.items], echo.repeats)
