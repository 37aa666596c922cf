"""Streams of in-memory records, for any records, lanes, batches and ranks."""

from collections import Counter
from contextlib import closing
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.images.decode import WHOLE
from pcr_exp.loading.batch import Batch, EncodedImages
from pcr_exp.loading.lanes import EpochLanes
from pcr_exp.loading.order import EpochOrder, EpochRange, RankShare, SampleSequence, epoch_order
from pcr_exp.loading.plan import Plan
from pcr_exp.loading.read_ahead import Reading
from pcr_exp.loading.stream import BatchStream
from pcr_exp.loading.workers import Decoded
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.index import RecordEntry, RecordIndex


class MemoryPrefix(RecordPrefix):
    """A record whose sample s has the ID and bytes `<record>/<s>`."""

    def __init__(self, record: int, size: int, group: int) -> None:
        ids = [f"{record}/{sample}" for sample in range(size)]
        labels = {"number": np.arange(size) + 1000 * record}
        super().__init__(ids, labels, group, 10**record, (), WHOLE)

    def parts(self, i: int) -> list[bytes]:
        """Return two pieces, as of two scan groups."""
        name = self.ids[i].encode()
        return [name[:1], name[1:]]


class MemoryRecords:
    """Stands in for a RecordSet. Record r has 10^r bytes, so a total shows which records were counted."""

    def __init__(self, sizes: list[int]) -> None:
        entries = [RecordEntry(f"{record}.pcr", size, (10**record,), 0) for record, size in enumerate(sizes)]
        self.index = RecordIndex("memory", "train", "baseline", "", 1, {"number": []}, entries)
        self.reads: list[int] = []

    def source_of(self, record: int) -> None:
        """Return None: there is no mixture."""

    def read_prefix(self, record: int, group: int) -> MemoryPrefix:
        self.reads.append(record)
        return MemoryPrefix(record, self.index.records[record].num_samples, group)


class Task(NamedTuple):
    """A batch and its encoded images."""

    batch: Batch
    images: EncodedImages


class Noting:
    """Decoder that notes its input and returns one pixel per image."""

    def __init__(self) -> None:
        self.seen: list[EncodedImages] = []

    def room(self, num_images: int) -> tuple[int, int]:
        return num_images, num_images

    def __call__(self, images: EncodedImages) -> Decoded:
        self.seen.append(images)
        shape = len(images.files), 1, 1, 3
        return Decoded(np.zeros(shape, dtype=np.uint8), 0.0, shape)


def all_tasks(
    records: MemoryRecords,
    span: EpochRange,
    *,
    lanes: int,
    batch_size: int,
    ahead: int,
    share: RankShare = RankShare(),  # noqa: B008
) -> list[Task]:
    def order(epoch: int) -> EpochOrder:
        sizes = [entry.num_samples for entry in records.index.records]
        laid = EpochLanes(sizes, seed=5, epoch=epoch, num_lanes=lanes, window=1)
        return epoch_order(
            [SampleSequence.once(laid.slot(slot, share.num_slots)) for slot in share.slots], batch_size
        )

    decoder = Noting()
    stream = BatchStream(
        Plan(span, share.slots, order, StaticScan(1).group),
        records,  # type: ignore[arg-type]
        decoder,
        Reading(3, ahead),
        LoaderConfig(num_workers=0),
        label="number",
        batch_size=batch_size,
    )
    with closing(stream):
        return [Task(batch, images) for batch, images in zip(stream, decoder.seen, strict=False)]


def files(task: Task) -> list[bytes]:
    return [bytes(file) for file in task.images.files]


def same(a: Task, b: Task) -> bool:
    fields = ("epoch", "index", "num_batches", "record_bytes", "group", "slot", "part")
    images = [(files(t), t.images.groups, t.images.names) for t in (a, b)]
    return (
        images[0] == images[1]
        and all(getattr(a.batch, f) == getattr(b.batch, f) for f in fields)
        and torch.equal(a.batch.labels, b.batch.labels)
    )


SHAPE = {
    "sizes": st.lists(st.integers(1, 9), min_size=1, max_size=8),
    "lanes": st.sampled_from([4, 8]),
    "batch_size": st.integers(1, 30),
    "ahead": st.integers(1, 5),
}


@settings(max_examples=20, deadline=None)  # threads, on a machine that may be busy
@given(**SHAPE)
def test_an_epoch_is_every_sample_and_every_byte_once(
    sizes: list[int], lanes: int, batch_size: int, ahead: int
) -> None:
    records = MemoryRecords(sizes)
    tasks = all_tasks(records, EpochRange(0, 0, 2), lanes=lanes, batch_size=batch_size, ahead=ahead)
    num_batches = -(-sum(sizes) // batch_size)
    assert [(t.batch.epoch, t.batch.index, t.batch.num_batches) for t in tasks] == [
        (epoch, index, num_batches) for epoch in range(2) for index in range(num_batches)
    ]
    for epoch in range(2):
        of_epoch = [task for task in tasks if task.batch.epoch == epoch]
        assert all(len(task.images.files) == batch_size for task in of_epoch[:-1])
        jpegs = [jpeg.decode() for task in of_epoch for jpeg in files(task)]
        assert sorted(jpegs) == sorted(f"{r}/{s}" for r, size in enumerate(sizes) for s in range(size))
        labels = [label for task in of_epoch for label in task.batch.labels.tolist()]
        assert labels == [1000 * int(jpeg.split("/")[0]) + int(jpeg.split("/")[1]) for jpeg in jpegs]
        assert sum(task.batch.record_bytes for task in of_epoch) == records.index.epoch_bytes(1)
    assert Counter(records.reads) == dict.fromkeys(range(len(sizes)), 2)


@settings(max_examples=20, deadline=None)  # threads, on a machine that may be busy
@given(**SHAPE, world_size=st.sampled_from([2, 4]))
def test_ranks_have_equally_many_batches_and_together_every_sample(
    sizes: list[int], lanes: int, batch_size: int, ahead: int, world_size: int
) -> None:
    seen: Counter[bytes] = Counter()
    counts = set()
    for rank in range(world_size):
        records = MemoryRecords(sizes)
        tasks = all_tasks(
            records,
            EpochRange(4, 0, 5),
            lanes=lanes,
            batch_size=batch_size,
            ahead=ahead,
            share=RankShare(rank, world_size, world_size),
        )
        counts.add(tuple(len(task.images.files) for task in tasks))
        seen.update(jpeg for task in tasks for jpeg in files(task))
        assert sum(task.batch.record_bytes for task in tasks) == sum(10**record for record in records.reads)
    assert len(counts) == 1
    assert len(seen) == sum(sizes)
    assert seen.total() - len(seen) < world_size


@settings(max_examples=20, deadline=None)  # threads, on a machine that may be busy
@given(**SHAPE, data=st.data())
def test_a_span_from_the_middle_is_the_rest_of_the_whole(
    sizes: list[int], lanes: int, batch_size: int, ahead: int, data: st.DataObject
) -> None:
    whole = all_tasks(
        MemoryRecords(sizes), EpochRange(0, 0, 3), lanes=lanes, batch_size=batch_size, ahead=ahead
    )
    num_batches = len(whole) // 3
    first_batch = data.draw(st.integers(0, num_batches))
    records = MemoryRecords(sizes)
    rest = all_tasks(records, EpochRange(1, first_batch, 3), lanes=lanes, batch_size=batch_size, ahead=ahead)
    expected = whole[num_batches + first_batch :]
    assert len(rest) == len(expected)
    assert all(same(a, b) for a, b in zip(rest, expected, strict=True))
    needed = {jpeg.split(b"/")[0] for task in rest if task.batch.epoch == 1 for jpeg in files(task)}
    assert len(records.reads) == len(needed) + len(sizes), "no record is read that is not needed"


@settings(max_examples=10, deadline=None)  # twelve streams, of three threads each
@given(**SHAPE)
def test_a_process_of_several_slots_gives_the_batches_of_several_processes(
    sizes: list[int], lanes: int, batch_size: int, ahead: int
) -> None:
    """This also holds from mid-epoch: every process resumes at the same update."""

    def batches(world_size: int, first_batch: int) -> dict[tuple[int, int], list[bytes]]:
        found = {}
        for rank in range(world_size):
            share = RankShare(rank, world_size, 4)
            span = EpochRange(0, first_batch, 1)
            made = all_tasks(
                MemoryRecords(sizes), span, lanes=lanes, batch_size=batch_size, ahead=ahead, share=share
            )
            assert {task.batch.num_parts for task in made} <= {4 // world_size}
            assert [share.slots[task.batch.part] for task in made] == [task.batch.slot for task in made]
            found |= {(task.batch.index, task.batch.slot): files(task) for task in made}
        return found

    for first_batch in (0, 1):
        alone = batches(1, first_batch)
        assert batches(2, first_batch) == batches(4, first_batch) == alone
    assert set(batches(1, 1)) == {key for key in batches(1, 0) if key[0] >= 1}
