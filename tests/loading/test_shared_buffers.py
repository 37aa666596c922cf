"""Shared buffers are reused only once nothing refers to them."""

import gc
import os
import pickle
import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.loading.batch import Files
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.shared_buffers import SharedBuffer, SharedBuffers
from pcr_exp.loading.transform import TrainTransform

OpenLoader = Callable[..., RecordLoader]


def two_buffers(num_bytes: int) -> tuple[SharedBuffers, SharedBuffer, SharedBuffer]:
    shared_buffers = SharedBuffers(2, num_bytes, num_bytes)
    first, second = shared_buffers.take(), shared_buffers.take()
    assert first is not None and second is not None
    return shared_buffers, first, second


def test_what_a_child_writes_the_parent_reads() -> None:
    _, first, second = two_buffers(1000)
    sent = pickle.dumps(second)
    assert len(sent) < 100
    child = os.fork()
    if child == 0:
        pickle.loads(sent).pixels((10, 5, 5, 3))[:] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert (second.receive((10, 5, 5, 3)) == 7).all()
    assert second.receive((10, 5, 5, 3)).shape == (10, 5, 5, 3)
    assert (first.receive((1000,)) == 0).all()


@given(files=st.lists(st.lists(st.binary(max_size=30), min_size=1)), room=st.integers(0, 200))
def test_files_keep_their_bytes_whether_a_buffer_has_room_or_not(files: list[list[bytes]], room: int) -> None:
    _, first, second = two_buffers(max(1, room))
    in_shared, alone = Files(first), Files()
    for parts in files:
        in_shared.add(parts)
        alone.add(parts)
    first.pixels((max(1, room),))[:] = 1
    whole = [b"".join(parts) for parts in files]
    for given_files in (
        in_shared,
        alone,
        pickle.loads(pickle.dumps(in_shared)),
        pickle.loads(pickle.dumps(alone)),
    ):
        assert len(given_files) == len(files)
        assert [bytes(file) for file in given_files] == whole
        assert not any(memoryview(file).readonly for file in given_files)
    assert not any(second.files) and not second.pixels((max(1, room),)).any()


def test_a_slab_is_free_again_only_when_nothing_refers_to_it() -> None:
    shared_buffers, _, second = two_buffers(300)
    assert shared_buffers.take() is None
    images = torch.from_numpy(second.receive((4, 5, 5, 3)))
    view, array = images[2:, :, ::2].permute(0, 3, 1, 2), images.numpy()[1]
    for name in ("images", "view"):
        assert shared_buffers.take() is None, f"before {name} is gone"
        if name == "images":
            del images
        else:
            del view
    gc.collect()
    assert shared_buffers.take() is None
    assert (array == 0).all()
    del array
    gc.collect()
    assert shared_buffers.take() is second


def test_a_buffer_that_was_not_needed_is_free_again() -> None:
    shared_buffers, first, _ = two_buffers(300)
    assert shared_buffers.take() is None
    first.release()
    assert shared_buffers.take() is first


def test_buffers_that_are_gone_leave_their_batches_readable() -> None:
    shared_buffers, first, second = two_buffers(12)
    first.pixels((12,))[:] = 5
    images = first.receive((12,))
    del shared_buffers, first, second
    gc.collect()
    assert (images == 5).all()


def test_files_too_large_for_a_slab_travel_by_themselves(open_loader: OpenLoader) -> None:
    """Images of 4 x 4 pixels are smaller than their JPEG files."""
    transform = TrainTransform(4, AugmentConfig())
    expected = list(open_loader(transform=transform).batches(0, 0, 1))
    batches = list(open_loader(2, transform=transform).batches(0, 0, 1))
    assert len(batches) == len(expected)
    for batch, inline in zip(batches, expected, strict=True):
        assert torch.equal(batch.images, inline.images)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_batches_that_are_kept_stay_as_they_were(open_loader: OpenLoader, num_workers: int) -> None:
    """There are more batches than shared buffers; some are kept and some dropped at once."""
    expected = [batch.images for batch in open_loader().batches(0, 0, 4)]
    kept = {}
    for number, batch in enumerate(open_loader(num_workers).batches(0, 0, 4)):
        assert torch.equal(batch.images, expected[number])
        if number % 3 != 1:
            kept[number] = batch.images[:, ::2]
    assert len(kept) > 2 * 2 + 3
    for number, images in kept.items():
        assert torch.equal(images, expected[number][:, ::2])


def test_batches_are_writable_and_their_own(open_loader: OpenLoader) -> None:
    stream = open_loader(1).batches(0, 0, 1)
    first, second = next(stream), next(stream)
    untouched = second.images.clone()
    first.images.zero_()
    assert torch.equal(second.images, untouched)


def test_batches_that_are_dropped_leave_their_place_to_others(open_loader: OpenLoader) -> None:
    loader = open_loader(config=LoaderConfig(num_workers=2, prefetch_batches=2))
    places = [batch.images.data_ptr() for batch in loader.batches(0, 0, 10)]
    assert len(places) == 90
    assert len(set(places)) <= 2 * 2 + 3


def test_buffers_are_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        shared_buffers, first, second = two_buffers(9)
        gone = [weakref.ref(first), weakref.ref(second)]
        del shared_buffers, first, second
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()
