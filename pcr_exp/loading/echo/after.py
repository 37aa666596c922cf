"""Echoing behind decoding and augmentation: the same pixels several times.

These stages stand behind the decoding processes, in the training process: each fresh image is read, decoded
and augmented once. They take fresh batches of whole epochs and give echoed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pcr_exp.loading.batch import Batch
from pcr_exp.loading.echo.repeats import Echo, Ints
from pcr_exp.loading.order import Span


@dataclass(slots=True)
class _Held:
    """A fresh image that will be used again."""

    image: Tensor
    label: Tensor
    group: int


def example_start(echo: Echo, first_batch: int, batch_size: int) -> int:
    """The fresh batch from which on examples are needed for the echoed batches from `first_batch` on."""
    still_used = echo.items[first_batch * batch_size :]
    return int(still_used.min()) // batch_size if len(still_used) else -(-_num_items(echo) // batch_size)


def batch_start(echo: Echo, first_batch: int, batch_size: int) -> int:  # noqa: ARG001
    """As `example_start`, where batches are repeated."""
    still_used = echo.items[first_batch:]
    return int(still_used[0]) if len(still_used) else _num_items(echo)


def echo_examples(
    fresh: Iterable[Batch], echo_of: Callable[[int], Echo], span: Span, batch_size: int
) -> Generator[Batch, None, None]:
    """Batches of examples that are used several times, and shuffled in between.

    Args:
        fresh: From the batch on that `example_start` says.
        echo_of: Uses of an epoch's examples.
        span: Of the batches that are given.

    An image is copied when it comes, and once more into every batch that uses it: no two batches share
    memory. In memory are at most as many as the shuffle buffer holds, and two batches.
    """
    stream = iter(fresh)
    for epoch, first_batch in span.epochs():
        echo = echo_of(epoch)
        last_use = _last_uses(echo)
        came = example_start(echo, first_batch, batch_size) * batch_size
        # What was needed before the span begins was counted there.
        counted = int(echo.items[: first_batch * batch_size].max(initial=-1))
        held: dict[int, _Held] = {}
        num_batches = -(-len(echo.items) // batch_size)
        for index in range(first_batch, num_batches):
            first, end = index * batch_size, min((index + 1) * batch_size, len(echo.items))
            items = echo.items[first:end]
            newest, record_bytes, full_bytes, decode_s = int(items.max()), 0, 0, 0.0
            while came <= newest:
                batch = next(stream, None)
                if batch is None:
                    return
                if came > counted:
                    record_bytes += batch.record_bytes
                    full_bytes += batch.full_bytes
                decode_s += batch.decode_s
                for i in np.flatnonzero(last_use[came : came + len(batch.labels)] >= first).tolist():
                    held[came + i] = _Held(batch.images[i].clone(), batch.labels[i], batch.group)
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
                decode_s=decode_s,
            )
            for item in {item for item in items.tolist() if last_use[item] < end}:
                del held[item]


def echo_batches(
    fresh: Iterable[Batch], echo_of: Callable[[int], Echo], span: Span
) -> Generator[Batch, None, None]:
    """Every batch several times in a row, each time in memory of its own.

    Args:
        fresh: From the batch on that `batch_start` says.
        echo_of: Uses of an epoch's batches.
        span: Of the batches that are given.
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
    """uint8 [B, H, W, 3] in memory of its own, page-locked where there is a GPU to copy it to."""
    shape = (len(images), *images[0].shape)
    return torch.stack(
        images, out=torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    )


def _num_items(echo: Echo) -> int:
    return int(echo.items.max()) + 1


def _last_uses(echo: Echo) -> Ints:
    """[n] the last position that uses each item."""
    found = np.empty(_num_items(echo), dtype=np.int64)
    # Of repeated indices, numpy keeps the last one assigned.
    found[echo.items] = np.arange(len(echo.items))
    return found
