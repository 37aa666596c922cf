"""Echoed batches have the right samples, pixels and byte counts for any number of workers."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from golden_batches import assert_same

from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.errors import ConfigError, LoaderError, RecordError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.echo import after
from pcr_exp.loading.echo.after import echo_batches, echo_examples
from pcr_exp.loading.echo.before import EchoBefore
from pcr_exp.loading.echo.stage import EchoStage
from pcr_exp.loading.echo.stage import echo as echo_of
from pcr_exp.loading.echo.variants import BatchEchoConfig, ExampleAfterConfig, ExampleBeforeConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.order import EpochRange
from pcr_exp.loading.stage import StageInputs
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage

OpenLoader = Callable[..., RecordLoader]

ECHOES = [
    ExampleBeforeConfig(factor=2),
    ExampleBeforeConfig(factor=2.5, buffer=40),
    ExampleBeforeConfig(factor=3, buffer=30, repeat_groups=[7, 10]),
    ExampleAfterConfig(factor=2),
    ExampleAfterConfig(factor=2.5, buffer=40),
    BatchEchoConfig(factor=2),
    BatchEchoConfig(factor=1.5),
]


def name(echo: EchoConfig) -> str:
    return f"{echo.name}-{echo.factor:g}-{echo.buffer}-{len(echo.repeat_groups)}"


echoes = pytest.mark.parametrize("echo", ECHOES, ids=name)


def uses(batches: Iterable[Batch]) -> dict[int, list[bytes]]:
    """Return the pixels of each use, in order, by label. Every sample has its own label."""
    found: dict[int, list[bytes]] = {}
    for batch in batches:
        for label, image in zip(batch.labels.tolist(), batch.images, strict=True):
            found.setdefault(label, []).append(image.numpy().tobytes())
    return found


@echoes
def test_an_epoch_uses_every_sample_as_often_as_the_factor_says(
    open_loader: OpenLoader, echo: EchoConfig
) -> None:
    loader = open_loader(echo=echo)
    batches = list(loader.batches(2, 0, 4))
    assert [(b.epoch, b.index) for b in batches] == [
        (epoch, index) for epoch in (2, 3) for index in range(loader.num_batches)
    ]
    assert {b.num_batches for b in batches} == {loader.num_batches}
    assert loader.num_samples == 100
    for epoch in (2, 3):
        of_epoch = [batch for batch in batches if batch.epoch == epoch]
        counts = Counter(len(images) for images in uses(of_epoch).values())
        assert set(counts) <= {int(echo.factor), int(echo.factor) + 1}
        assert counts.total() == 100
        assert sum(batch.num_fresh for batch in of_epoch) == 100, "an epoch is counted in fresh examples"
        num_uses = sum(len(batch.labels) for batch in of_epoch)
        # `batch` repeats whole batches, and the last one is short.
        assert abs(num_uses - echo.factor * 100) <= (0 if echo.name != "batch" else 12)


_three_epochs: dict[str, list[Batch]] = {}


def three_epochs(open_loader: OpenLoader, echo: EchoConfig) -> list[Batch]:
    """Return batches decoded in this process, once for all tests."""
    if name(echo) not in _three_epochs:
        _three_epochs[name(echo)] = list(open_loader(echo=echo).batches(0, 0, 3))
    return _three_epochs[name(echo)]


@echoes
@pytest.mark.parametrize("num_workers", [1, 3])
def test_workers_change_nothing_but_speed(
    open_loader: OpenLoader, echo: EchoConfig, num_workers: int
) -> None:
    expected = [batch for batch in three_epochs(open_loader, echo) if batch.epoch < 2]
    assert_same(open_loader(num_workers, echo=echo).batches(0, 0, 2), expected)


@echoes
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_resumed_stream_goes_on_as_if_nothing_had_happened(
    open_loader: OpenLoader, echo: EchoConfig, num_workers: int
) -> None:
    whole = three_epochs(open_loader, echo)
    last = whole[0].num_batches
    for first_batch in (0, 1, 8, 9, last // 2, last - 1, last) if num_workers == 0 else (last // 2,):
        num_epochs = 3 if first_batch in (last // 2, last) else 2
        rest = open_loader(num_workers, echo=echo).batches(1, first_batch, num_epochs)
        expected = [batch for batch in whole[last + first_batch :] if batch.epoch < num_epochs]
        assert_same(rest, expected)


def test_repeats_before_augmentation_are_augmented_afresh(open_loader: OpenLoader) -> None:
    for images in uses(open_loader(echo=ECHOES[1]).batches(0, 0, 1)).values():
        assert len(set(images)) == len(images)


@pytest.mark.parametrize("echo", ECHOES[3:], ids=name)
def test_repeats_after_augmentation_are_the_same_pixels_in_memory_of_their_own(
    open_loader: OpenLoader, echo: EchoConfig
) -> None:
    fresh = uses(open_loader().batches(0, 0, 1))
    batches = []
    for batch in open_loader(1, echo=echo).batches(0, 0, 1):
        kept = Batch(batch.images.clone(), batch.labels, *(0, 0, 0, 0, 0, 0))
        batches.append(kept)
        batch.images.zero_()  # as an in-place transform would
    for label, images in uses(batches).items():
        assert set(images) == set(fresh[label])


def test_an_echo_of_one_is_no_echo(open_loader: OpenLoader) -> None:
    expected = list(open_loader().batches(0, 0, 2))
    for echo in (ExampleBeforeConfig(), ExampleAfterConfig(), BatchEchoConfig()):
        assert_same(open_loader(1, echo=echo).batches(0, 0, 2), expected)


def test_a_buffer_shuffles_without_repeats(open_loader: OpenLoader) -> None:
    """A fair baseline uses such a buffer."""
    echo = ExampleBeforeConfig(factor=1, buffer=50)
    labels = torch.cat([batch.labels for batch in open_loader(echo=echo).batches(0, 0, 1)]).tolist()
    plain = torch.cat([batch.labels for batch in open_loader().batches(0, 0, 1)]).tolist()
    assert sorted(labels) == sorted(plain) == list(range(100))
    assert labels != plain


@pytest.mark.parametrize("echo", [ECHOES[0], ECHOES[1], *ECHOES[3:]], ids=name)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_echoed_epoch_reads_its_bytes_once(
    open_loader: OpenLoader,
    records: RecordSet,
    storage: CountingStorage,
    echo: EchoConfig,
    num_workers: int,
) -> None:
    loader = open_loader(num_workers, echo=echo)
    batches = list(loader.batches(0, 0, 1))
    assert sum(batch.decode_s for batch in batches) == pytest.approx(loader.stats.decode_s)
    assert sum(batch.record_bytes for batch in batches) == records.index.epoch_bytes(5)
    assert sum(batch.full_bytes for batch in batches) == records.index.epoch_bytes(10)
    assert storage.bytes_read == records.index.epoch_bytes(5)
    assert storage.num_reads == len(records.index.records)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_finer_repeats_read_only_the_bytes_in_between(
    open_loader: OpenLoader, records: RecordSet, storage: CountingStorage, num_workers: int
) -> None:
    echo = ECHOES[2]
    batches = list(open_loader(num_workers, group=2, echo=echo).batches(0, 0, 1))
    # Three reads of each record, which together cover it up to group 10.
    assert storage.num_reads == 3 * len(records.index.records)
    assert storage.bytes_read == records.index.epoch_bytes(10)
    assert sum(batch.record_bytes for batch in batches) == records.index.epoch_bytes(10)
    assert sum(batch.full_bytes for batch in batches) == records.index.epoch_bytes(10)


def test_finer_repeats_show_what_a_read_at_their_group_shows(open_loader: OpenLoader) -> None:
    """The k-th use of a sample has the same pixels as in batches read entirely at the group of that use."""
    finer = list(open_loader(group=2, echo=ECHOES[2]).batches(0, 0, 1))
    plain = ExampleBeforeConfig(factor=3, buffer=30)
    at_group = {group: list(open_loader(group=group, echo=plain).batches(0, 0, 1)) for group in (2, 7, 10)}
    seen: Counter[int] = Counter()
    for index, batch in enumerate(finer):
        for i, label in enumerate(batch.labels.tolist()):
            group = (2, 7, 10)[seen[label]]
            assert torch.equal(batch.images[i], at_group[group][index].images[i])
            seen[label] += 1
    assert set(seen.values()) == {3}


class SometimesFine(StaticScan):
    """Reads odd records whole at once."""

    def group(self, epoch: int, record: int) -> int:  # noqa: ARG002
        return 10 if record % 2 else 2


def test_repeats_never_show_less_than_what_was_read_first(
    open_loader: OpenLoader, records: RecordSet, storage: CountingStorage
) -> None:
    echo = ExampleBeforeConfig(factor=2, repeat_groups=[5])
    batches = list(open_loader(policy=SometimesFine(2), echo=echo).batches(0, 0, 1))
    wanted = sum(records.index.prefix_bytes(record, 10 if record % 2 else 5) for record in range(7))
    assert storage.bytes_read == sum(batch.record_bytes for batch in batches) == wanted


def test_ranks_share_an_echoed_epoch(open_loader: OpenLoader) -> None:
    for echo in ECHOES:
        counts = Counter()
        num_batches = set()
        for rank in range(4):
            batches = list(open_loader(echo=echo, rank=rank, world_size=4).batches(0, 0, 1))
            num_batches.add(tuple(len(batch.labels) for batch in batches))
            counts.update(label for batch in batches for label in batch.labels.tolist())
        # Batch lengths come from the fresh order: ranks may repeat different batches, but equally many.
        assert len({len(lengths) for lengths in num_batches}) == 1
        assert set(counts) == set(range(100))


def test_echoes_are_the_same_for_any_number_of_processes(open_loader: OpenLoader) -> None:
    def batches(world_size: int) -> dict[tuple[int, int], Batch]:
        return {
            (batch.index, batch.slot): batch
            for rank in range(world_size)
            for batch in open_loader(
                echo=ECHOES[2], rank=rank, world_size=world_size, global_batch_size=48
            ).batches(0, 0, 1)
        }

    alone, of_two = batches(1), batches(2)
    assert alone.keys() == of_two.keys()
    assert all(torch.equal(alone[key].images, of_two[key].images) for key in alone)
    for echo in (ECHOES[3], ECHOES[5]):
        message = f"echo={echo.name} does not work with 2 batches per process.*echo=example_before"
        with pytest.raises(ConfigError, match=message):
            open_loader(echo=echo, rank=0, world_size=2, global_batch_size=48)


def test_epochs_end_early_only_where_decoding_follows_the_echo(open_loader: OpenLoader) -> None:
    whole = list(open_loader(echo=ECHOES[1]).batches(0, 0, 1))
    assert_same(open_loader(echo=ECHOES[1]).batches(0, 0, 1, end_batch=3), whole[:3])
    for echo in (ECHOES[3], ECHOES[5]):
        with pytest.raises(LoaderError, match=f"end_batch=3: wanted none with echo={echo.name}"):
            open_loader(echo=echo).batches(0, 0, 1, end_batch=3)


def test_a_stream_of_repeats_ends_with_the_loader(open_loader: OpenLoader) -> None:
    for echo in ECHOES:
        loader = open_loader(1, echo=echo)
        stream = loader.batches(0, 0, 2)
        next(stream)
        loader.close()
        assert list(stream) == []


def test_what_does_not_fit_the_records_is_refused(open_loader: OpenLoader, storage: CountingStorage) -> None:
    with pytest.raises(ConfigError, match=r"echo.buffer=201: wanted at most 200, .*\(100 fresh ones x"):
        open_loader(echo=ExampleAfterConfig(factor=2, buffer=201))
    open_loader(echo=ExampleAfterConfig(factor=2, buffer=200))
    finer = ExampleBeforeConfig(factor=2, repeat_groups=[5])
    with pytest.raises(ConfigError, match=r"echo.repeat_groups=\[5\]: wanted scan groups above 5"):
        open_loader(group=5, echo=finer)
    baseline = RecordSet(storage, "baseline")
    with pytest.raises(ConfigError, match=r"echo.repeat_groups=\[5\]: wanted none with scan=baseline"):
        open_loader(group=1, records=baseline, echo=finer)


def test_patience_is_measured_against_the_longest_read(open_loader: OpenLoader, records: RecordSet) -> None:
    largest = max(records.index.prefix_bytes(record, 10) for record in range(7))
    slow = StorageConfig(name="slow", bandwidth_mib_per_s=largest / 2**20 / 10)
    config = LoaderConfig(num_workers=0, timeout_s=9)
    finer = ExampleBeforeConfig(factor=3, repeat_groups=[5, 10])
    with pytest.raises(ConfigError, match=r"loader.timeout_s=9: wanted null, or more than the 10\.0 s"):
        open_loader(group=1, config=config, storage_config=slow, echo=finer).batches(0, 0, 1)
    open_loader(group=1, config=config, storage_config=slow).batches(0, 0, 1)


def test_a_group_that_the_records_lack_is_refused(open_loader: OpenLoader, records: RecordSet) -> None:
    finer = ExampleBeforeConfig(factor=2, repeat_groups=[10])
    object.__setattr__(records.index, "num_groups", 9)
    try:
        with pytest.raises(RecordError, match="scan group 10 was asked for"):
            open_loader(group=5, echo=finer)
    finally:
        object.__setattr__(records.index, "num_groups", 10)


def test_a_stage_whose_input_ends_early_ends(open_loader: OpenLoader) -> None:
    """Training then reports that the loader ended too early."""
    first = list(open_loader().batches(0, 0, 1))[:1]
    whole = echo_of(100, 1, 1, np.random.default_rng(0))
    assert len(list(echo_examples(first, lambda _: whole, EpochRange(0, 0, 1), 12))) == 1
    batches = echo_of(9, 1, 1, np.random.default_rng(0))
    assert len(list(echo_batches(first, lambda _: batches, EpochRange(0, 0, 1)))) == 1


@pytest.mark.parametrize("echo", [ECHOES[0], ECHOES[3], ECHOES[5]], ids=name)
def test_batches_of_a_process_are_of_its_slot(open_loader: OpenLoader, echo: EchoConfig) -> None:
    """Models draw different random numbers for each micro-batch index."""
    for rank in range(4):
        batches = open_loader(echo=echo, rank=rank, world_size=4).batches(0, 0, 1)
        assert {batch.slot for batch in batches} == {rank}


def test_repeats_of_other_groups_cannot_be_replaced(open_loader: OpenLoader) -> None:
    config = LoaderConfig(num_workers=0, on_corrupt="replace")
    with pytest.raises(ConfigError, match="wanted 'fail' with echo"):
        open_loader(config=config, echo=ExampleBeforeConfig(factor=2, repeat_groups=[7]))


def test_the_group_of_repeats_is_that_of_the_image_read_last() -> None:
    images = torch.zeros(2, 1, 1, 3, dtype=torch.uint8)
    fresh = (
        Batch(images, torch.tensor([2 * i, 2 * i + 1]), 0, i, 4, 100, 400, group=i + 1) for i in range(4)
    )
    order = echo_of(8, 2.0, 5, np.random.default_rng(0))
    for batch in echo_examples(fresh, lambda _: order, EpochRange(0, 0, 1), 2):
        assert batch.group == 1 + int(batch.labels.max()) // 2


class Counted(after._Held):
    """Counts the images that are held, each in memory of its own, so that the rest of its batch is not."""

    num_held = most = 0

    def __init__(self, image: torch.Tensor, *given: Any) -> None:
        super().__init__(image, *given)
        assert image.untyped_storage().nbytes() == image.nbytes
        Counted.num_held += 1
        Counted.most = max(Counted.most, Counted.num_held)

    def __del__(self) -> None:
        Counted.num_held -= 1


def test_an_image_is_held_until_its_last_use(
    open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after, "_Held", Counted)
    for _ in open_loader(echo=ExampleAfterConfig(factor=2, buffer=10)).batches(0, 0, 2):
        pass
    assert Counted.num_held == 0
    assert Counted.most <= 10 + 2 * 12, "the buffer's images, and those of two batches"


def test_every_micro_batch_index_is_echoed_in_its_own_order() -> None:
    sizes = {"num_samples": 50, "batch_size": 10}
    inputs = StageInputs(index=None, first_group=1, seed=0, slots=(0, 1), **sizes)  # type: ignore[arg-type]
    stage = EchoStage(ExampleAfterConfig(factor=2.0, buffer=20), inputs, num_items=50)
    orders = {tuple(stage._echo_of(epoch, slot).items) for epoch in (0, 1) for slot in (0, 1)}
    assert len(orders) == 4
    of_both = EchoBefore(ExampleBeforeConfig(factor=2.0, buffer=20), inputs)
    assert of_both.num_buffered_samples == 2 * 20, "each has a buffer of its own"
    assert EchoBefore(ExampleBeforeConfig(factor=2.0), inputs).num_buffered_samples == 0
