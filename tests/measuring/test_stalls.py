"""`pcr_exp.measure` on loaders and models with known speeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pcr_exp as pcr
from pcr_exp.errors import ConfigError
from pcr_exp.measuring import stalls as stalls_module
from pcr_exp.measuring.stalls import Stalls, measure

BATCH_SIZE = 10


class Clock:
    """A clock that advances only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds


class Loader:
    """Batches of ten; the first iteration takes longer, because its bytes are not in memory yet."""

    def __init__(self, pass_time: Callable[[float], None], batch_s: float, cold_s: float = 0.0) -> None:
        self.pass_time, self.batch_s, self.cold_s = pass_time, batch_s, cold_s

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        extra_s, self.cold_s = self.cold_s, 0.0
        for _ in range(30):
            self.pass_time(self.batch_s + extra_s)
            yield torch.zeros(BATCH_SIZE, 3, 2, 2), torch.zeros(BATCH_SIZE)


def found(batch_s: float, model_s: float, *, cold_s: float = 0.0, warm: bool = False) -> Stalls:
    clock = Clock()
    loader = Loader(clock.pass_time, batch_s, cold_s)
    step = lambda _: clock.pass_time(model_s)  # noqa: E731
    return measure(loader, step, num_batches=20, num_warmup=3, warm=warm, now=clock)


def test_the_parts_and_what_both_take_together() -> None:
    stalls = found(0.03, 0.01)
    assert stalls.num_batches == 20
    assert stalls.loader_images_per_s == pytest.approx(10 / 0.03)
    assert stalls.model_images_per_s == pytest.approx(10 / 0.01)
    assert stalls.together_images_per_s == pytest.approx(10 / 0.04)
    assert stalls.stall_share == pytest.approx(0.75)
    assert stalls.fetch_share is None and "measure with warm=True" in stalls.advice
    assert str(stalls).splitlines()[0].split() == ["training", "250", "images/s"]
    assert "stalls                            75% of the time" in str(stalls)


@pytest.mark.parametrize(
    ("batch_s", "model_s", "cold_s", "fetch_share", "advice"),
    [
        (0.0002, 0.01, 0.0, 0.0, "The model is the limit"),
        (0.01, 0.01, 0.06, 0.75, "Storage is the limit"),
        (0.06, 0.01, 0.01, 0.125, "Decoding and augmenting are the limit"),
        (0.005, 0.01, 0.0, 0.0, "Loader and model are fast enough alone"),
    ],
)
def test_what_to_do(batch_s: float, model_s: float, cold_s: float, fetch_share: float, advice: str) -> None:
    stalls = found(batch_s, model_s, cold_s=cold_s, warm=True)
    assert stalls.fetch_share == pytest.approx(fetch_share) and stalls.advice.startswith(advice)
    assert "of these, fetching" in str(stalls)


@pytest.mark.alone
def test_a_loader_and_a_model_that_sleep() -> None:
    """In real time: 20 ms a batch and 10 ms an update, one after the other."""
    loader = Loader(time.sleep, 0.02)
    stalls = measure(loader, lambda _: time.sleep(0.01), num_batches=15, num_warmup=2)
    assert stalls.stall_share == pytest.approx(2 / 3, abs=0.1)
    assert stalls.loader_images_per_s == pytest.approx(500, rel=0.15)


def test_a_loader_of_ours_is_left_where_it_was(split: Path) -> None:
    loader = pcr.open(split, label="number").loader(batch_size=8, seed=0, image_size=16, num_workers=0)
    next(iter(loader))
    before = loader.state_dict()
    measure(loader, lambda _: None, num_batches=15, num_warmup=1)
    assert loader.state_dict() == before and loader.epoch == 0


def test_a_module_is_trained_and_left_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model[2].weight.grad = torch.ones(4, 12)
    images = torch.randint(0, 256, (5, 2, 2, 3), dtype=torch.uint8)
    stalls = measure([(images, torch.zeros(5))] * 6, model, num_batches=4, num_warmup=1)
    assert stalls.num_batches == 4 and 0 <= stalls.stall_share < 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model[2].weight.grad, torch.ones(4, 12)) and model[0].weight.grad is None
    assert model.training


@pytest.mark.parametrize("batch", [np.zeros((4, 2)), {"x": np.zeros((4, 2))}, [(torch.zeros(4), 1)]])
def test_batches_of_all_kinds(batch: Any) -> None:
    clock = Clock()
    stalls = measure([batch] * 5, lambda _: clock.pass_time(1.0), num_batches=4, num_warmup=1, now=clock)
    assert stalls.model_images_per_s == 4


def sized(num_images: int, pass_time: Callable[[float], None]) -> Iterator[torch.Tensor]:
    """Yield an epoch in batches of up to 64; each takes the loader 10 ms, whatever its size."""
    for first in range(0, num_images, 64):
        pass_time(0.01)
        yield torch.zeros(min(64, num_images - first), 3)


class Epochs:
    """An iterable whose epochs are all alike."""

    def __init__(self, epoch: Callable[[], Iterator[torch.Tensor]]) -> None:
        self.epoch, self.num_epochs = epoch, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.num_epochs += 1
        return self.epoch()


@pytest.mark.parametrize("num_images", [20 * 64 + 1, 20 * 64 + 63])
def test_a_last_batch_that_is_not_full_changes_nothing(num_images: int) -> None:
    """A step takes 5 ms plus 1 ms per image, so the fixed part dominates on a batch of one."""

    def found(num_images: int) -> Stalls:
        clock = Clock()
        loader = Epochs(lambda: sized(num_images, clock.pass_time))
        step = lambda batch: clock.pass_time(0.005 + 0.001 * len(batch))  # noqa: E731
        return measure(loader, step, num_batches=20, num_warmup=3, now=clock)

    whole, ragged = found(20 * 64), found(num_images)
    assert ragged.model_images_per_s == pytest.approx(64 / 0.069) == whole.model_images_per_s
    assert ragged.together_images_per_s == pytest.approx(64 / 0.079) == whole.together_images_per_s
    assert ragged.loader_images_per_s == pytest.approx(64 / 0.01) == whole.loader_images_per_s
    assert ragged.advice == whole.advice


def test_a_device_is_waited_for_where_the_size_changes_and_not_at_every_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps return at once; their time shows only when the device is synchronised."""
    clock, queued_s, num_waits = Clock(), 0.0, 0

    def wait() -> bool:
        nonlocal queued_s, num_waits
        clock.pass_time(queued_s)
        queued_s, num_waits = 0.0, num_waits + 1
        return True

    def step(batch: torch.Tensor) -> None:
        nonlocal queued_s
        queued_s += 0.1 * len(batch) / 64

    monkeypatch.setattr(stalls_module, "_wait_for_device", wait)
    loader = Epochs(lambda: sized(20 * 64 + 1, lambda _: None))
    found = measure(loader, step, num_batches=20, num_warmup=3, now=clock)
    assert found.model_images_per_s == pytest.approx(640) == found.together_images_per_s
    assert num_waits < 15


@pytest.mark.parametrize(("num_full", "num_rounds"), [(1, 21), (5, 4), (20, 2), (21, 1)])
def test_fewer_than_eleven_full_batches_go_round_again(num_full: int, num_rounds: int) -> None:
    clock = Clock()
    loader = Epochs(lambda: sized(num_full * 64 + (num_full == 5), clock.pass_time))
    seen: list[int] = []

    def step(batch: torch.Tensor) -> None:
        seen.append(len(batch))
        clock.pass_time(0.01)

    stalls = measure(loader, step, now=clock)
    assert stalls.num_batches >= 11 and loader.num_epochs == 2 * num_rounds
    assert seen[-1] == 64 and stalls.model_images_per_s == pytest.approx(6400)
    assert stalls.together_images_per_s == pytest.approx(3200)


def test_batches_of_all_sizes_end_somewhere() -> None:
    clock = Clock()
    endless = [torch.zeros(num_images) for num_images in range(1, 1000)]
    stalls = measure(endless, lambda _: clock.pass_time(1.0), num_batches=5, num_warmup=0, now=clock)
    assert stalls.num_batches == 1 and stalls.model_images_per_s == 10


def test_a_model_alone_that_is_slower_than_training_is_a_disturbed_measurement() -> None:
    clock = Clock()
    took_s = iter([0.01] * 23 + [0.02] * 23)  # another program takes half of the cores
    loader = Loader(clock.pass_time, 0.0001)
    stalls = measure(loader, lambda _: clock.pass_time(next(took_s)), num_batches=20, num_warmup=3, now=clock)
    assert stalls.is_disturbed and stalls.advice.startswith("The measurement was disturbed: the model alone")
    assert "disturbed" in str(stalls) and "stalls " not in str(stalls)
    assert not found(0.0002, 0.01).is_disturbed


def test_what_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match="num_warmup=10: the loader gave only 10 batches, so none"):
        measure(iter([torch.zeros(2)] * 10), lambda _: None)
    with pytest.raises(ConfigError, match="num_batches=0: wanted at least 1"):
        measure([torch.zeros(2)], lambda _: None, num_batches=0)
    with pytest.raises(ConfigError, match="num_warmup=-1: wanted 0 or more"):
        measure([torch.zeros(2)], lambda _: None, num_warmup=-1)
    with pytest.raises(ConfigError, match="the loader gave a str: wanted a tensor or array"):
        measure(["image"] * 20, lambda _: None)
