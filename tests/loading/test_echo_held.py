"""A shuffle buffer keeps the samples that will be used again in memory, and at most as many others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.images.decode import WHOLE
from pcr_exp.loading.echo.before import EchoReads, SomeSamples, echoed
from pcr_exp.loading.echo.stage import echo
from pcr_exp.loading.lanes import EpochLanes
from pcr_exp.loading.order import EpochOrder, SampleSequence, epoch_order
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.system.randomness import Purpose, stream


class Prefix(RecordPrefix):
    """A prefix whose sample s of record r is `r/s`."""

    def __init__(self, record: int, size: int) -> None:
        labels = {"number": np.full(size, record)}
        super().__init__([str(sample) for sample in range(size)], labels, 5, 1000, (), WHOLE)

    def parts(self, i: int, group: int | None = None) -> list[bytes]:  # noqa: ARG002
        return [f"{self.labels['number'][i]}/".encode(), self.ids[i].encode()]


def order_of(sizes: list[int], factor: float, buffer: int, num_continuations: int = 0) -> EpochOrder:
    fresh = SampleSequence.once(EpochLanes(sizes, seed=0, epoch=0, num_lanes=2, window=1).slot(0, 1))
    behind = echoed(fresh, echo(len(fresh.records), factor, buffer, stream(0, Purpose.ECHO)))
    return epoch_order([behind], 1, range(num_continuations))


def consume(
    order: EpochOrder, sizes: list[int], batch_size: int
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return the files of an epoch, and (held, needed) samples each time records were opened."""
    reads = EchoReads(order)
    files, held = [], []
    for first in range(0, len(order.reads), batch_size):
        end = min(first + batch_size, len(order.reads))
        new = {read for read in order.reads[first:end].tolist() if order.first_use[read] >= first}
        for read in new:
            record = int(order.records[read])
            reads.open(read, Prefix(record, sizes[record]))
        for read, sample in zip(
            order.reads[first:end].tolist(), order.samples[first:end].tolist(), strict=True
        ):
            files.append(b"".join(reads.samples(read).parts(sample)))
        opened = reads._in_use
        for read in [read for read in opened if order.last_use[read] < end]:
            del opened[read]
        if new:
            reads.trim(end)
            left = {*zip(order.reads[end:].tolist(), order.samples[end:].tolist(), strict=True)}
            needed = sum(read in opened for read, _ in left)
            held.append((sum(len(samples) for samples in opened.values()), needed))
    return files, held


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.floats(1, 4),
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(0, 2),
)
def test_what_is_needed_is_there_and_little_else(
    sizes: list[int], factor: float, buffer: int, batch_size: int, num_continuations: int
) -> None:
    order = order_of(sizes, factor, buffer, num_continuations)
    files, held = consume(order, sizes, batch_size)
    assert files == [
        f"{record}/{sample}".encode()
        for record, sample in zip(order.records[order.reads].tolist(), order.samples.tolist(), strict=True)
    ]
    if num_continuations == 0 and order.repeats.any():
        assert all(samples < 2 * needed or samples == needed == 0 for samples, needed in held)


def test_a_large_buffer_does_not_hold_all_records() -> None:
    sizes = [64] * 60
    _, held = consume(order_of(sizes, 2, 256), sizes, 32)
    assert max(samples for samples, _ in held) < 2 * 256
    assert max(needed for _, needed in held) > 100, "else nothing had to be held"


def test_what_was_let_go_is_not_there() -> None:
    few = SomeSamples.of(Prefix(3, 5), [1, 4])
    assert (len(few), few.parts(4), few.group, few.num_bytes, few.ids[2]) == (2, (b"3/4",), 5, 1000, "2")
    with pytest.raises(KeyError):
        few.parts(2)
