"""Shared memory that is used again: never while anybody still looks at it."""

import gc
import os
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.slabs import Slabs, receive_pixels
from pcr_exp.loading.transform import TrainTransform

OpenLoader = Callable[..., RecordLoader]


def test_what_a_child_writes_the_parent_reads() -> None:
    slabs = Slabs(2, 1000)
    child = os.fork()
    if child == 0:
        slabs.pixels(1, (10, 5, 5, 3))[:] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert (slabs.receive(1, (10, 5, 5, 3)) == 7).all()
    assert slabs.receive(1, (10, 5, 5, 3)).shape == (10, 5, 5, 3)
    assert (slabs.receive(0, (1000,)) == 0).all()


@given(pieces=st.lists(st.binary(max_size=30)), room=st.integers(0, 20))
def test_bytes_lie_end_to_end(pieces: list[bytes], room: int) -> None:
    slabs = Slabs(2, max(1, sum(map(len, pieces)) + room))
    slabs.put(0, pieces)
    assert slabs.pieces(0, [len(piece) for piece in pieces]) == pieces
    slabs.pixels(0, (slabs.num_bytes,))[:] = 1
    assert not slabs.pixels(1, (slabs.num_bytes,)).any()


def test_a_slab_is_free_again_only_when_nothing_refers_to_it() -> None:
    slabs = Slabs(2, 300)
    assert [slabs.take(), slabs.take(), slabs.take()] == [0, 1, None]
    images = torch.from_numpy(receive_pixels(slabs.number, 1, (4, 5, 5, 3)))
    view, array = images[2:, :, ::2].permute(0, 3, 1, 2), images.numpy()[1]
    for name in ("images", "view"):
        assert slabs.take() is None, f"before {name} is gone"
        if name == "images":
            del images
        else:
            del view
    gc.collect()
    assert slabs.take() is None
    assert (array == 0).all()
    del array
    gc.collect()
    assert slabs.take() == 1


def test_slabs_that_are_gone_leave_their_batches_readable() -> None:
    slabs = Slabs(1, 12)
    slabs.pixels(0, (12,))[:] = 5
    images = receive_pixels(slabs.number, 0, (12,))
    del slabs
    gc.collect()
    assert (images == 5).all()


def test_jpegs_too_large_for_a_slab_travel_by_themselves(open_loader: OpenLoader) -> None:
    """Images of 4 x 4 pixels are smaller than the JPEGs that they come from."""
    transform = TrainTransform(4, AugmentConfig())
    expected = list(open_loader(transform=transform).batches(0, 0, 1))
    batches = list(open_loader(2, transform=transform).batches(0, 0, 1))
    assert len(batches) == len(expected)
    for batch, inline in zip(batches, expected, strict=True):
        assert torch.equal(batch.images, inline.images)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_batches_that_are_kept_stay_as_they_were(open_loader: OpenLoader, num_workers: int) -> None:
    """Of more batches than there are slabs, some kept and some dropped at once."""
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
