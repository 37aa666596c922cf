"""The loader yields the same batches, each once, for any number of workers and from any start."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from golden_batches import assert_same

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.errors import ConfigError, LoaderError, RecordError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import EvalTransform, TrainTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage

OpenLoader = Callable[..., RecordLoader]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_workers_change_nothing_but_speed(
    open_loader: OpenLoader, storage: CountingStorage, num_workers: int
) -> None:
    expected = list(open_loader(0).batches(0, 0, 2))
    bytes_inline = storage.bytes_read
    assert_same(open_loader(num_workers).batches(0, 0, 2), expected)
    assert storage.bytes_read == 2 * bytes_inline


class Alternating(StaticScan):
    """Alternates groups 1 and 2 between records and between epochs."""

    def __init__(self) -> None:
        super().__init__(1)
        self.candidates = (1, 2)
        self.asked: list[tuple[int, int]] = []

    def group(self, epoch: int, record: int) -> int:
        self.asked.append((epoch, record))
        return 1 + (epoch + record) % 2


@pytest.mark.parametrize("decode", ["unsmoothed", "scaled"])
def test_modes_decode_each_sample_as_its_own_group_asks(open_loader: OpenLoader, decode: str) -> None:
    """Batches mix groups, and are the same for any number of workers."""
    config = LoaderConfig(num_workers=2, shuffle_records=3, decode=decode)
    mixed = list(open_loader(config=config, policy=Alternating()).batches(0, 0, 1))
    inline = replace(config, num_workers=0)
    assert_same(mixed, open_loader(config=inline, policy=Alternating()).batches(0, 0, 1))
    alone = [list(open_loader(config=inline, group=group).batches(0, 0, 1)) for group in (1, 2)]
    libjpeg = replace(inline, decode="libjpeg")
    smoothed = list(open_loader(config=libjpeg, policy=Alternating()).batches(0, 0, 1))
    from_group, differ = [0, 0], 0
    for batches in zip(mixed, *alone, smoothed, strict=True):
        for image, *references, libjpegs in zip(*(batch.images for batch in batches), strict=True):
            fits = [torch.equal(image, reference) for reference in references]
            assert any(fits)
            from_group = [count + fit for count, fit in zip(from_group, fits, strict=True)]
            differ += not torch.equal(image, libjpegs)
    assert min(from_group) > 30
    assert differ > 90


@pytest.mark.parametrize("num_workers", [0, 1, 2, 4])
@pytest.mark.parametrize("group", [1, 10])
def test_an_epoch_reads_exactly_its_bytes(
    open_loader: OpenLoader, records: RecordSet, storage: CountingStorage, num_workers: int, group: int
) -> None:
    batches = list(open_loader(num_workers, group).batches(3, 0, 4))
    assert sum(batch.record_bytes for batch in batches) == records.index.epoch_bytes(group)
    assert storage.bytes_read == records.index.epoch_bytes(group)
    assert storage.num_reads == len(records.index.records)


def test_batches_say_what_they_are(open_loader: OpenLoader) -> None:
    loader = open_loader()
    assert (loader.num_samples, loader.num_batches) == (100, 9)
    batches = list(loader.batches(0, 0, 2))
    assert [(b.epoch, b.index) for b in batches] == [(e, i) for e in range(2) for i in range(9)]
    assert {b.num_batches for b in batches} == {9}
    assert {b.group for b in batches} == {5}
    assert [len(b.labels) for b in batches] == 2 * [*8 * [12], 4]
    for batch in batches:
        assert batch.images.shape == (len(batch.labels), 32, 32, 3)
        assert batch.images.dtype == torch.uint8
        assert batch.images.is_contiguous()
        assert batch.labels.dtype == torch.int64


def test_every_sample_comes_once_an_epoch_in_another_order(open_loader: OpenLoader) -> None:
    epochs: dict[int, list[int]] = {0: [], 1: []}
    for batch in open_loader().batches(0, 0, 2):
        epochs[batch.epoch] += batch.labels.tolist()
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(100))
    assert epochs[0] != epochs[1]


def test_ranks_share_an_epoch(open_loader: OpenLoader) -> None:
    labels = []
    for rank in range(4):
        loader = open_loader(rank=rank, world_size=4)
        batches = list(loader.batches(0, 0, 1))
        assert len(batches) == loader.num_batches == 3
        labels += [label for batch in batches for label in batch.labels.tolist()]
    assert sorted(labels) == list(range(100))


def test_batches_are_the_same_for_any_number_of_processes(open_loader: OpenLoader) -> None:
    """Four micro-batches, in four processes, two or one, have the same images, also from mid-epoch."""

    def batches(world_size: int, first_batch: int) -> dict[tuple[int, ...], Batch]:
        found = {}
        for rank in range(world_size):
            loader = open_loader(rank=rank, world_size=world_size, batch_size=6, global_batch_size=24)
            assert (loader.num_samples, loader.num_batches) == (100 // world_size, 5)
            own = list(loader.batches(0, first_batch, 2))
            assert [batch.part for batch in own] == [*range(4 // world_size)] * (10 - first_batch)
            assert [batch.completes_update for batch in own] == [
                batch.part + 1 == 4 // world_size for batch in own
            ]
            found |= {(batch.epoch, batch.index, batch.slot): batch for batch in own}
        return found

    alone = batches(1, 0)
    assert len(alone) == 2 * 5 * 4
    for world_size, first_batch in ((2, 0), (4, 0), (2, 2), (1, 4)):
        for key, batch in batches(world_size, first_batch).items():
            assert torch.equal(batch.images, alone[key].images)
            assert torch.equal(batch.labels, alone[key].labels)
    assert sorted(label for batch in alone.values() for label in batch.labels.tolist()) == sorted(
        [*range(100)] * 2
    )


def test_lanes_that_cannot_be_shared_are_refused(open_loader: OpenLoader) -> None:
    with pytest.raises(ConfigError, match=r"loader\.lanes=4: wanted a multiple of 3, .*such as 6"):
        open_loader(rank=0, world_size=3)
    open_loader(rank=0, world_size=3, shuffle=False)


def test_augmentation_differs_between_epochs_and_seeds(open_loader: OpenLoader) -> None:
    def images(seed: int, epoch: int) -> dict[int, bytes]:
        stream = open_loader(seed=seed).batches(epoch, 0, epoch + 1)
        return {
            label: image.numpy().tobytes()
            for batch in stream
            for label, image in zip(batch.labels.tolist(), batch.images, strict=True)
        }

    first = images(7, 0)
    for other in (images(7, 1), images(8, 0)):
        assert sum(first[label] == other[label] for label in first) < 10


def test_no_two_images_are_given_the_same_randomness(open_loader: OpenLoader) -> None:
    class Drawing(TrainTransform):
        def __call__(self, _image: object, draws: Sequence[float], out: np.ndarray) -> None:
            out.reshape(-1)[: 8 * len(draws)] = np.array(draws).view(np.uint8)
            out.reshape(-1)[8 * len(draws) :] = 0

    drawn = [
        image.numpy().tobytes()
        for rank in range(2)
        for batch in open_loader(
            transform=Drawing(8, AugmentConfig()), rank=rank, world_size=2, batch_size=10
        ).batches(0, 0, 3)
        for image in batch.images
    ]
    assert len(drawn) == 3 * 100
    assert len(set(drawn)) == len(drawn)


def test_without_shuffling_samples_come_as_stored(open_loader: OpenLoader) -> None:
    loader = open_loader(shuffle=False, transform=EvalTransform(32, AugmentConfig()))
    first, second = list(loader.batches(0, 0, 1)), list(loader.batches(1, 0, 2))
    assert torch.cat([batch.labels for batch in first]).tolist() == list(range(100))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.images, b.images)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("first_batch", range(10))
def test_a_resumed_stream_goes_on_as_if_nothing_had_happened(
    open_loader: OpenLoader, num_workers: int, first_batch: int
) -> None:
    whole = list(open_loader().batches(0, 0, 3))
    assert_same(open_loader(num_workers).batches(1, first_batch, 3), whole[9 + first_batch :])


def test_a_resumed_stream_reads_only_what_it_still_needs(
    open_loader: OpenLoader, records: RecordSet, storage: CountingStorage
) -> None:
    (last,) = open_loader().batches(0, 8, 1)
    # Each of the four lanes has one sample left, in records that all but one of them may share.
    assert storage.num_reads <= 4
    assert len(last.labels) == 4
    assert storage.bytes_read < records.index.epoch_bytes(5) * 4 / 7


def test_a_new_stream_ends_the_one_before(open_loader: OpenLoader) -> None:
    loader = open_loader(1)
    first = loader.batches(0, 0, 1)
    next(first)
    assert len(list(loader.batches(0, 0, 1))) == 9
    assert list(first) == []


def test_the_policy_is_asked_at_each_record_in_reading_order(
    open_loader: OpenLoader, records: RecordSet, storage: CountingStorage
) -> None:
    policy = Alternating()
    batches = list(open_loader(policy=policy).batches(0, 0, 2))
    reads = policy.asked
    assert [epoch for epoch, _ in reads] == 7 * [0] + 7 * [1]
    assert sorted(record for _, record in reads[:7]) == list(range(7))
    wanted = sum(records.index.prefix_bytes(record, 1 + (epoch + record) % 2) for epoch, record in reads)
    assert storage.bytes_read == sum(batch.record_bytes for batch in batches) == wanted
    assert {batch.group for batch in batches} == {1, 2}


def test_the_global_random_state_is_left_alone(open_loader: OpenLoader) -> None:
    before = torch.get_rng_state(), random.getstate()
    list(open_loader(1).batches(0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_what_the_records_lack_is_refused_at_once(open_loader: OpenLoader) -> None:
    with pytest.raises(RecordError, match=r"scan group 11 .* have groups 1 to 10"):
        open_loader(group=11)
    with pytest.raises(ConfigError, match=r"dataset\.label='colour': wanted one of number, parity"):
        open_loader(label="colour")
    with pytest.raises(ConfigError, match="rank=2: wanted a rank of world_size=2"):
        open_loader(rank=2, world_size=2)
    with pytest.raises(LoaderError, match="batch 10 was requested first, but an epoch has 9 batches"):
        open_loader().batches(0, 10, 1)


def test_small_budgets_do_not_block(open_loader: OpenLoader) -> None:
    config = LoaderConfig(num_workers=2, shuffle_records=5, records_ahead=1, prefetch_batches=4)
    assert len(list(open_loader(config=config, batch_size=7).batches(0, 0, 3))) == 3 * 15
    assert len(list(open_loader(config=config, batch_size=1000).batches(0, 0, 3))) == 3


@pytest.mark.gpu
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_pinned_where_there_is_a_gpu(open_loader: OpenLoader, num_workers: int) -> None:
    expected = [batch.images for batch in open_loader().batches(0, 0, 1)]
    for batch, images in zip(open_loader(num_workers).batches(0, 0, 1), expected, strict=True):
        assert batch.images.is_pinned()
        assert batch.labels.is_pinned()
        assert torch.equal(batch.images.cuda(non_blocking=True).cpu(), images)
