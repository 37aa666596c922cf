"""`example_after` and `batch`: use the same pixels several times.

These stages follow the decoding processes and run in the training process. Each fresh image is read, decoded
and augmented once. The stages take fresh batches of whole epochs and yield echoed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.echo.stage import Echo, EchoStage, Ints
from pcr_exp.loading.order import EpochRange
from pcr_exp.loading.stage import StageInputs


class _Behind(EchoStage):
    """A stage after decoding, for a process with a single stream of batches."""

    def __init__(
        self, config: EchoConfig, inputs: StageInputs, *, num_items: int, start: Callable[[Echo, int], int]
    ) -> None:
        """`start(echo, batch)` returns the first fresh batch needed by echoed batches from `batch` on.

        Raises:
            ConfigError: as for `EchoStage`; or this process has several micro-batches in a global batch.
        """
        if len(inputs.slots) > 1:
            raise ConfigError(
                f"echo={config.name} does not work with {len(inputs.slots)} batches per process in a global "
                "batch: it repeats decoded batches, and needs one stream of batches per process. Start one "
                "process per batch of the global batch, raise training.batch_size, or use "
                "echo=example_before."
            )
        super().__init__(config, inputs, num_items=num_items)
        self._start = start

    def decoded_span(self, span: EpochRange) -> EpochRange:
        """Return the range of decoded batches that a range of the loader's batches is made of.

        Raises:
            LoaderError: `span` ends its epochs early (`end_batch`).
        """
        if span.first_epoch >= span.num_epochs:
            return span
        if span.end_batch is not None:
            raise LoaderError(
                f"end_batch={span.end_batch}: wanted none with echo={self._config.name}, whose batches are "
                "made of whole epochs. Open a loader without echo."
            )
        first_batch = self._start(self._echo(span.first_epoch), span.first_batch)
        return EpochRange(span.first_epoch, first_batch, span.num_epochs)


class EchoAfter(_Behind):
    """Repeats samples as they were augmented."""

    def __init__(self, config: EchoConfig, inputs: StageInputs) -> None:
        start = partial(example_start, batch_size=inputs.batch_size)
        super().__init__(config, inputs, num_items=inputs.num_samples, start=start)
        self.num_batches = -(-self.num_uses // inputs.batch_size)

    def batches(self, decoded: Iterator[Batch], span: EpochRange) -> Iterator[Batch]:
        """Return the loader's batches in `span`, made of those decoded in `decoded_span(span)`."""
        return echo_examples(decoded, self._echo, span, self._batch_size)


class EchoBatches(_Behind):
    """Repeats each batch several times in a row."""

    def __init__(self, config: EchoConfig, inputs: StageInputs) -> None:
        num_fresh = -(-inputs.num_samples // inputs.batch_size)
        super().__init__(config, inputs, num_items=num_fresh, start=batch_start)
        self.num_batches = self.num_uses

    def batches(self, decoded: Iterator[Batch], span: EpochRange) -> Iterator[Batch]:
        """Return the loader's batches in `span`, made of those decoded in `decoded_span(span)`."""
        return echo_batches(decoded, self._echo, span)


@dataclass(slots=True)
class _Held:
    """A fresh image that is still to be used."""

    image: Tensor
    label: Tensor
    group: int
    is_replaced: bool


def example_start(echo: Echo, first_batch: int, batch_size: int) -> int:
    """Return the first fresh batch needed by the echoed batches from `first_batch` on."""
    still_used = echo.items[first_batch * batch_size :]
    return int(still_used.min()) // batch_size if len(still_used) else -(-_num_items(echo) // batch_size)


def batch_start(echo: Echo, first_batch: int) -> int:
    """Like `example_start`, for repeated batches."""
    still_used = echo.items[first_batch:]
    return int(still_used[0]) if len(still_used) else _num_items(echo)


def echo_examples(
    fresh: Iterable[Batch], echo_of: Callable[[int], Echo], span: EpochRange, batch_size: int
) -> Generator[Batch, None, None]:
    """Yield batches of samples that are used several times, and shuffled in between.

    Args:
        fresh: Fresh batches, starting with the one that `example_start` returns.
        echo_of: Returns the uses of an epoch's samples.
        span: The range of batches to yield.

    An image is copied on arrival, and again into every batch that uses it, so no two batches share memory.
    Memory holds at most the images of the shuffle buffer and of two batches.
    """
    stream, slot = iter(fresh), 0
    for epoch, first_batch in span.epochs():
        echo = echo_of(epoch)
        last_use = _last_uses(echo)
        came = example_start(echo, first_batch, batch_size) * batch_size
        # Items needed before the span begins were counted there.
        counted = int(echo.items[: first_batch * batch_size].max(initial=-1))
        held: dict[int, _Held] = {}
        num_batches = -(-len(echo.items) // batch_size)
        for index in range(first_batch, num_batches):
            first, end = index * batch_size, min((index + 1) * batch_size, len(echo.items))
            items = echo.items[first:end]
            newest, decode_s = int(items.max()), 0.0
            record_bytes = full_bytes = 0
            while came <= newest:
                batch = next(stream, None)
                if batch is None:
                    return
                if came > counted:
                    record_bytes += batch.record_bytes
                    full_bytes += batch.full_bytes
                slot = batch.slot
                decode_s += batch.decode_s
                for i in np.flatnonzero(last_use[came : came + len(batch.labels)] >= first).tolist():
                    is_replaced = i in batch.replaced
                    held[came + i] = _Held(batch.images[i].clone(), batch.labels[i], batch.group, is_replaced)
                came += len(batch.labels)
            yield Batch(
                images=_stack([held[item].image for item in items.tolist()]),
                labels=torch.stack([held[item].label for item in items.tolist()]),
                epoch=epoch,
                index=index,
                num_batches=num_batches,
                record_bytes=record_bytes,
                full_bytes=full_bytes,
                group=held[newest].group,
                num_repeats=int(np.count_nonzero(echo.repeats[first:end])),
                replaced=[i for i, item in enumerate(items.tolist()) if held[item].is_replaced],
                decode_s=decode_s,
                slot=slot,
            )
            for item in {item for item in items.tolist() if last_use[item] < end}:
                del held[item]


def echo_batches(
    fresh: Iterable[Batch], echo_of: Callable[[int], Echo], span: EpochRange
) -> Generator[Batch, None, None]:
    """Yield every batch several times in a row, each time in its own memory.

    Args:
        fresh: Fresh batches, starting with the one that `batch_start` returns.
        echo_of: Returns the uses of an epoch's batches.
        span: The range of batches to yield.
    """
    stream = iter(fresh)
    for epoch, first_batch in span.epochs():
        echo = echo_of(epoch)
        batch: Batch | None = None
        number = -1
        for index in range(first_batch, len(echo.items)):
            item, repeat = int(echo.items[index]), int(echo.repeats[index])
            if item != number:
                batch, number = next(stream, None), item
            if batch is None:
                return
            is_last = index + 1 == len(echo.items) or echo.items[index + 1] != item
            yield replace(
                batch,
                images=batch.images if is_last else _stack(list(batch.images)),
                index=index,
                num_batches=len(echo.items),
                record_bytes=0 if repeat else batch.record_bytes,
                full_bytes=0 if repeat else batch.full_bytes,
                num_repeats=len(batch.labels) if repeat else 0,
                decode_s=0.0 if repeat else batch.decode_s,
            )


def _stack(images: list[Tensor]) -> Tensor:
    """Stack images into uint8 [B, H, W, 3] in new memory, page-locked if there is a GPU."""
    shape = (len(images), *images[0].shape)
    return torch.stack(
        images, out=torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    )


def _num_items(echo: Echo) -> int:
    return int(echo.items.max()) + 1


def _last_uses(echo: Echo) -> Ints:
    """Return the last position that uses each item, [n]."""
    found = np.empty(_num_items(echo), dtype=np.int64)
    # For repeated indices, numpy keeps the last value assigned.
    found[echo.items] = np.arange(len(echo.items))
    return found
