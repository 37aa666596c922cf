"""`dataset.loader(...)` feeds any training loop. Resumes and numbers of workers leave batches unchanged."""

from __future__ import annotations

import gc
import json
import random
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import pcr_exp as pcr
from pcr_exp.api.dataset import RecordDataset
from pcr_exp.api.loader import DatasetLoader
from pcr_exp.errors import ConfigError, LoaderError, RecordError, StorageError
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.stream import BatchStream
from pcr_exp.policies.policy import StaticScan

Open = Callable[..., DatasetLoader]
Seen = list[tuple[list[int], Tensor]]


@pytest.fixture
def train(split: Path) -> RecordDataset:
    return pcr.open(split, scan="group_2", label="number", transform=random_crop)


@pytest.fixture
def open_loader(train: RecordDataset) -> Iterator[Open]:
    opened: list[DatasetLoader] = []

    def open_with(dataset: RecordDataset = train, **given: Any) -> DatasetLoader:
        opened.append(dataset.loader(**{"batch_size": 16, "num_workers": 0, "seed": 7} | given))
        return opened[-1]

    yield open_with
    for loader in opened:
        loader.close()


def random_crop(pixels: np.ndarray) -> Tensor:
    """Return a float32 [3, 24, 24] crop, placed by Python's and numpy's random numbers."""
    top, left = random.randrange(20), np.random.randint(20)  # noqa: NPY002
    return torch.from_numpy(pixels[top : top + 24, left : left + 24]).permute(2, 0, 1) / 255


def taken(batches: Iterator[tuple[Tensor, Tensor]], num: int | None = None) -> Seen:
    """Return copies of the next `num` batches, or of all batches for None."""
    numbers = range(2**30 if num is None else num)
    return [(labels.tolist(), images.clone()) for _, (images, labels) in zip(numbers, batches, strict=False)]


def alike(one: Seen, other: Seen) -> bool:
    return len(one) == len(other) and all(
        labels == others and torch.equal(images, other_images)
        for (labels, images), (others, other_images) in zip(one, other, strict=True)
    )


def test_every_image_once_an_epoch_and_epochs_differ(open_loader: Open) -> None:
    loader = open_loader()
    assert len(loader) == 7
    epochs = [taken(iter(loader)) for _ in range(2)]
    for epoch in epochs:
        assert sorted(label for labels, _ in epoch for label in labels) == list(range(100))
        assert [list(images.shape) for _, images in epoch][-1] == [4, 3, 24, 24]
    assert epochs[0][0][0] != epochs[1][0][0] and loader.epoch == 2


@pytest.mark.parametrize("workers", [(0, 1), pytest.param((2, 1), marks=pytest.mark.slow)])
def test_a_state_goes_on_exactly_twice_in_a_row_with_other_workers(
    open_loader: Open, workers: tuple[int, int]
) -> None:
    """Two epochs that are resumed after 3 and after 5 batches equal two uninterrupted ones."""
    straight = open_loader()
    wanted = taken(iter(straight)) + taken(iter(straight))
    got: Seen = []
    state: dict[str, Any] | None = None
    for num, num_workers in ((3, workers[0]), (2, workers[1]), (None, workers[0])):
        loader = open_loader(num_workers=num_workers)
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        got += taken(iter(loader), num)
        state = loader.state_dict()
        if num is not None:
            loader.close()
    got += taken(iter(loader))
    assert alike(got, wanted)


def test_states_at_the_edges_of_an_epoch(open_loader: Open) -> None:
    straight = open_loader()
    first, second = taken(iter(straight)), taken(iter(straight))
    at_the_last = open_loader()
    assert len(taken(iter(at_the_last), 7)) == 7
    resumed = open_loader()
    resumed.load_state_dict(at_the_last.state_dict())
    assert taken(iter(resumed)) == []  # nothing is left of the epoch
    assert alike(taken(iter(resumed)), second)
    after = open_loader()
    assert alike(taken(iter(after)), first)
    resumed.load_state_dict(after.state_dict())
    resumed.set_epoch(1)  # as a loop that starts at the saved epoch does: nothing is lost
    assert alike(taken(iter(resumed)), second)
    resumed.set_epoch(0)
    assert alike(taken(iter(resumed)), first)


def test_an_epoch_that_is_left_is_followed_by_the_next(open_loader: Open) -> None:
    loader = open_loader()
    whole = open_loader()
    taken(iter(whole))
    left = iter(loader)
    next(left)
    assert alike(taken(iter(loader)), taken(iter(whole)))
    with pytest.raises(LoaderError, match="another iteration of this loader has begun"):
        next(left)


def test_a_state_of_something_else_is_refused(open_loader: Open, split: Path) -> None:
    state = open_loader().state_dict()
    for name, given in (
        ("seed", {"seed": 8}),
        ("batch_size", {"batch_size": 8}),
        ("shuffle", {"shuffle": False}),
    ):
        with pytest.raises(LoaderError, match=f"cannot be loaded here: {name} was"):
            open_loader(**given).load_state_dict(state)
    with pytest.raises(LoaderError, match="version was 2 when it was saved, and is 1"):
        open_loader().load_state_dict(state | {"version": 2})
    other = pcr.open(split, scan="group_1", label="number", transform=random_crop)
    with pytest.raises(LoaderError, match="scan was 'group_2' when it was saved, and is 'group_1'"):
        open_loader(other).load_state_dict(state)
    drawn = [{"name": "mixture", "group": 5, "weights": weights} for weights in ([2, 1], [1, 1])]
    one, another = (open_loader(pcr.open(split, scan, label="number"), image_size=16) for scan in drawn)
    with pytest.raises(LoaderError, match=r"scan was .*'weights': \[2, 1\].* and is .*'weights': \[1, 1\]"):
        another.load_state_dict(one.state_dict())


def test_processes_share_an_epoch_and_another_number_goes_on(open_loader: Open) -> None:
    shared = {"batch_size": 8, "global_batch_size": 16}
    wanted = [labels for labels, _ in taken(iter(open_loader(**shared)))]
    two = [open_loader(**shared, rank=rank, world_size=2) for rank in range(2)]
    halves = [[labels for labels, _ in taken(iter(loader), 3)] for loader in two]
    assert [labels for pair in zip(*halves, strict=True) for labels in pair] == wanted[:6]
    one = open_loader(**shared)
    one.load_state_dict(two[0].state_dict())
    assert [labels for labels, _ in taken(iter(one))] == wanted[6:]
    between = open_loader(**shared)
    taken(iter(between), 3)
    with pytest.raises(LoaderError, match="parts_per_update was 2 when it was saved, and is 1"):
        two[0].load_state_dict(between.state_dict())
    three = open_loader(batch_size=8, rank=2, world_size=3)  # lanes are rounded up to a multiple of 3
    assert sum(len(labels) for labels, _ in taken(iter(three))) == 34


def test_our_own_crops_are_those_of_the_record_loader(open_loader: Open, split: Path, records: Any) -> None:
    from pcr_exp.config.dataset import AugmentConfig
    from pcr_exp.config.loader import LoaderConfig
    from pcr_exp.loading.transform import TrainTransform

    plain = pcr.open(split, scan=5, label="number")
    got = taken(iter(open_loader(plain, image_size=32)))
    settings = {"transform": TrainTransform(32, AugmentConfig()), "label": "number", "batch_size": 16}
    config = LoaderConfig(num_workers=0)
    with RecordLoader(records, StaticScan(5), config, **settings, seed=7, shuffle=True) as loader:
        wanted = [(batch.labels.tolist(), batch.images.clone()) for batch in loader.batches(0, 0, 1)]
    assert alike(got, wanted) and got[0][1].dtype == torch.uint8
    ordered = open_loader(plain, image_size=32, augment=False, shuffle=False, drop_last=True)
    once, again = taken(iter(ordered)), taken(iter(ordered))
    assert alike(once, again) and [label for labels, _ in once for label in labels] == list(range(96))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_transforms_of_all_kinds(open_loader: Open, split: Path, num_workers: int) -> None:
    """Transforms take arrays or Pillow images, and may return more bytes than a shared buffer holds."""

    def check(
        transform: Callable[..., Any], shape: list[int], dtype: torch.dtype, images_as: str = "auto"
    ) -> None:
        dataset = pcr.open(split, label="number", transform=transform, images_as=images_as)
        (_, images), *_ = taken(iter(open_loader(dataset, num_workers=num_workers)), 1)
        assert (list(images.shape), images.dtype) == (shape, dtype)

    check(lambda pixels: pixels[:20, :30], [16, 20, 30, 3], torch.uint8)
    check(lambda image: image.resize((10, 20)), [16, 20, 10, 3], torch.uint8, "pil")
    check(lambda image: np.float64(image).mean(keepdims=True), [16, 1, 1, 1], torch.float64, "pil")
    check(lambda _: torch.zeros(3, 400, 400), [16, 3, 400, 400], torch.float32)


def test_what_cannot_be_stacked_is_refused(open_loader: Open, split: Path) -> None:
    def loader(transform: Callable[..., Any] | None, **given: Any) -> DatasetLoader:
        return open_loader(pcr.open(split, label="number", transform=transform), **given)

    for transform, message in (
        (
            lambda pixels: pixels,
            r"sample \d+\.jpg .*: the transform gave uint8 \[.*end the transform with a crop",
        ),
        (lambda pixels: [pixels], "the transform gave list; wanted one tensor"),
        (lambda _: torch.zeros(2, dtype=torch.bfloat16), "the transform gave bfloat16"),
    ):
        with pytest.raises(LoaderError, match=message):
            next(iter(loader(transform)))
    with pytest.raises(ConfigError, match="transform=None: wanted a transform"):
        loader(None)
    with pytest.raises(ConfigError, match="image_size=32: wanted either a transform or image_size"):
        loader(lambda pixels: pixels, image_size=32)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: wanted a whole number, at least 1"),
        ({"batch_size": "16"}, "batch_size='16': wanted a whole number"),
        ({"global_batch_size": 24}, r"global_batch_size=24: wanted a multiple of 16 \(batch_size=16 x w"),
        ({"rank": 2, "world_size": 2}, "rank=2: wanted a rank of world_size=2"),
        ({"world_size": 0}, "world_size=0: wanted at least 1"),
        ({"lanes": 3, "world_size": 2}, "lanes=3: wanted a multiple of 2, .*such as 4"),
        ({"num_workers": -1}, "num_workers=-1: wanted 0 or more"),
        ({"num_workers": None}, "num_workers=None: wanted 0 or more"),
        ({"reads_in_flight": 0}, "reads_in_flight=0: wanted None or 1 to 512"),
        ({"timeout_s": 0}, "timeout_s=0: wanted seconds above 0, or None"),
        ({"decode": "fast"}, "decode='fast': wanted libjpeg or"),
        ({"on_corrupt": "skip"}, "on_corrupt='skip': wanted fail or replace"),
        ({"image_size": 0}, "image_size=0: wanted at least 1"),
        ({"crop_scale": (0.5, 2)}, r"crop_scale=\(0.5, 2\): wanted 0 < low <= high <= 1"),
        ({"crop_ratio": 0.5}, r"crop_ratio=0.5: wanted two numbers"),
        ({"eval_crop_fraction": 0}, "eval_crop_fraction=0: wanted a share"),
        ({"image_size": None, "transform": random_crop, "antialias": False}, "antialias=False: wanted image"),
        *(
            ({"augment": False, name: value}, rf"{name}=.*: wanted augment=True with it")
            for name, value in {
                "crop_scale": (0.5, 1),
                "crop_ratio": (1, 1),
                "horizontal_flip": False,
            }.items()
        ),
        (
            {"batch_size": 10000, "drop_last": True},
            r"batch_size=10000: wanted at most 100 \(.*drop_last=False",
        ),
        ({"batch_size": 51, "drop_last": True, "world_size": 2}, "batch_size=51: wanted at most 50"),
    ],
)
def test_what_is_refused_has_the_name_of_its_argument(
    open_loader: Open, split: Path, given: dict[str, Any], message: str
) -> None:
    plain = pcr.open(split, label="number")
    with pytest.raises(ConfigError, match=f"^{message}"):
        open_loader(plain, **({"image_size": 32} | given))


def test_a_last_full_batch_is_enough(open_loader: Open, split: Path) -> None:
    loader = open_loader(pcr.open(split, label="number"), image_size=32, batch_size=100, drop_last=True)
    assert len(loader) == len(taken(iter(loader))) == 1


def test_another_image_in_place_of_a_damaged_one(open_loader: Open, split: Path, tmp_path: Path) -> None:
    shutil.copytree(split / "pcr", tmp_path / "pcr")
    damaged = pcr.open(tmp_path, label="number")
    file = tmp_path / damaged.records.path(0)
    place = int(damaged.records.read_prefix(0, 2).bounds(2)[3])
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(RecordError, match=r"record pcr/record-000000\.pcr"):
        taken(iter(open_loader(damaged, image_size=32)))
    seen = taken(iter(open_loader(damaged, image_size=32, on_corrupt="replace")))
    numbers = [number for labels, _ in seen for number in labels]
    assert len(numbers) == 100 and set(numbers) == set(range(100)) - {3}


def test_labels_are_the_user_s(open_loader: Open, split: Path) -> None:
    dataset = pcr.open(split, label="parity", labels={"even": -1, "odd": 9}, transform=lambda p: p[:8, :8])
    assert {label for labels, _ in taken(iter(open_loader(dataset))) for label in labels} == {-1, 9}


def test_transforms_leave_the_process_s_random_state(open_loader: Open) -> None:
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    batches = iter(open_loader())
    next(batches)
    assert torch.equal(torch.rand(2), wanted)


def test_a_schedule_reads_what_it_says(open_loader: Open, split: Path) -> None:
    scan = {"name": "schedule", "groups": [1, 10], "milestones": [1]}
    dataset = pcr.open(split, scan=scan, label="number", transform=random_crop)
    loader = open_loader(dataset, shuffle=False)  # unshuffled, it never reads into the next epoch
    storage, index = dataset.records.storage.inner, dataset.records.index
    for group in (1, 10):
        before = storage.bytes_read
        taken(iter(loader))
        assert storage.bytes_read - before == index.epoch_bytes(group)


def test_pillow_is_what_torchvision_s_first_transforms_get(open_loader: Open, split: Path) -> None:
    from torchvision import transforms as v1

    kinds: list[type] = []
    steps = [lambda image: kinds.append(type(image)) or image, v1.CenterCrop(20), v1.ToTensor()]
    dataset = pcr.open(split, label="number", transform=v1.Compose(steps))
    (_, images), *_ = taken(iter(open_loader(dataset)), 1)
    assert list(images.shape) == [16, 3, 20, 20] and set(kinds) == {Image.Image}


def test_an_epoch_that_failed_is_tried_again(open_loader: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = open_loader()
    first = taken(iter(loader))
    with monkeypatch.context() as failing:
        failing.setattr(BatchStream, "_take", Mock(side_effect=StorageError("gone")))
        with pytest.raises(StorageError, match="gone"):
            next(iter(loader))
    loader.set_epoch(1)
    assert len(taken(iter(loader))) == len(first)


def test_the_dataset_s_seed_is_the_loader_s(split: Path) -> None:
    def epoch(opened_with: int | None, **settings: Any) -> Seen:
        dataset = pcr.open(split, label="number", transform=random_crop, seed=opened_with)
        with dataset.loader(16, num_workers=0, **settings) as loader:
            return taken(iter(loader))

    assert not alike(epoch(1), epoch(2)) and alike(epoch(1), epoch(None, seed=1))
    assert alike(epoch(1, seed=2), epoch(2))


def test_what_a_closed_loader_held_is_freed(open_loader: Open) -> None:
    loader = open_loader()
    taken(iter(loader), 1)
    stream = weakref.ref(loader._stream)
    loader.close()
    gc.collect()
    assert stream() is None


def test_a_state_goes_through_json_with_tuples_in_its_scan(open_loader: Open, split: Path) -> None:
    scan = {"name": "schedule", "groups": (2, 10), "milestones": (1,)}
    dataset = pcr.open(split, scan, label="number", transform=random_crop)
    state = json.loads(json.dumps(open_loader(dataset).state_dict()))
    open_loader(dataset).load_state_dict(state)
