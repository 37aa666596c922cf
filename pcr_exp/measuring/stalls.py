"""Find out whether training waits for the loader: `measure(loader, model)`, for any iterable of batches.

Differential analysis, as in Mohan et al. 2021, "Analyzing and Mitigating Data Stalls in DNN Training" (VLDB
2021, section 4), compares training from cold storage, training with the bytes in memory, and the model alone
on one repeated batch. The first minus the second is the time of fetch stalls. The second minus the third is
the time of prep stalls: decoding, augmenting and handing over.

Only full batches count: the last batch of an epoch may hold a single image, but its step costs nearly as much
as that of a full batch.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcr_exp.config.check import require
from pcr_exp.errors import ConfigError

_MUCH = 0.05
"""Smallest share of the time that is worth acting on."""
_ENOUGH_BATCHES = 11
"""Fewest full batches behind a rate, unless `num_batches` is lower."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """Images per second of training and of its parts, and conclusions. Its string is a summary."""

    num_batches: int
    """Full batches that training was measured over."""
    together_images_per_s: float
    """Training itself, on its first pass."""
    loader_images_per_s: float
    """The loader alone; its batches are discarded."""
    model_images_per_s: float
    """The model alone, on one full batch repeated."""
    warm_images_per_s: float | None = None
    """Training a second time, with the bytes now in memory; None if not measured."""

    @property
    def is_disturbed(self) -> bool:
        """Whether the model alone was clearly slower than training, which includes it."""
        return self.model_images_per_s * (1 + _MUCH) < self.together_images_per_s

    @property
    def stall_share(self) -> float:
        """Share of training's time in which the model is idle. Meaningless if `is_disturbed`."""
        return _longer_share(self.together_images_per_s, self.model_images_per_s)

    @property
    def fetch_share(self) -> float | None:
        """Share of training's time that is saved when the bytes are in memory; None if not measured."""
        if self.warm_images_per_s is None:
            return None
        return _longer_share(self.together_images_per_s, self.warm_images_per_s)

    @property
    def advice(self) -> str:
        """Diagnosis and suggested remedy."""
        if self.is_disturbed:
            return (
                "The measurement was disturbed: the model alone was slower than training, which includes the "
                "model, so no conclusion is possible. Another program used the cores or the device, or their "
                "clock changed. Measure again on a quiet machine, over more batches (num_batches)."
            )
        if self.stall_share < _MUCH:
            return "The model is the limit: a faster loader would not help."
        if self.loader_images_per_s > self.model_images_per_s * (1 + _MUCH):
            return (
                "Loader and model are fast enough alone, but not together: they share the cores, or no batch "
                "is prepared while the model works. Give the loader workers, and the model fewer threads."
            )
        if self.fetch_share is None:
            return (
                "The loader is the limit. To find out whether it is storage or decoding, measure with "
                "warm=True, on data that fit in memory."
            )
        if self.fetch_share > self.stall_share / 2:
            return (
                "Storage is the limit: most stalls disappear when the bytes are in memory. Read fewer bytes "
                "(a lower scan group), read more of them at a time, or move the data closer."
            )
        return (
            "Decoding and augmenting are the limit: most stalls remain when the bytes are in memory. Use "
            "more workers or cores, cheaper transforms, smaller images, or fewer scans, which decode faster."
        )

    def __str__(self) -> str:
        rates = {
            "training": self.together_images_per_s,
            "training, bytes in memory": self.warm_images_per_s,
            "loader alone": self.loader_images_per_s,
            "model alone": self.model_images_per_s,
        }
        rows = [f"{name:28}{rate:9.0f} images/s" for name, rate in rates.items() if rate is not None]
        shares = {"stalls": self.stall_share, "of these, fetching": self.fetch_share}
        if self.is_disturbed:
            shares = {}  # no conclusion is valid
        rows += [f"{name:28}{share:9.0%} of the time" for name, share in shares.items() if share is not None]
        return "\n".join([*rows, self.advice])


def measure(
    loader: Iterable[Any],
    model: nn.Module | Callable[[Any], Any],
    *,
    num_batches: int = 50,
    num_warmup: int = 10,
    warm: bool = False,
    now: Callable[[], float] = time.perf_counter,
) -> Stalls:
    """Measure training, the loader alone and the model alone.

    Every measurement of the loader starts a new iteration; a loader of `pcr_exp.open` afterwards continues
    where it was. The first `num_warmup` batches are not counted;
    they should outnumber those that the loader prepares ahead. Training is measured first: for its cold
    speed, the loader's bytes must not be in the page cache.

    Rates cover full batches: those of the most common size, or the larger of two equally common sizes. An
    iteration that ends before eleven of them were counted (or `num_batches`, if fewer) starts again. From
    the second round on, bytes come from memory.

    Args:
        loader: Any iterable of batches, such as torch's DataLoader. A batch is a tensor or array, or a tuple,
            list or dict that begins with one. It has one row per image.
        model: A function that takes a batch and does an update, or a module. A module runs a forward and a
            backward pass on the batch's first tensor (uint8 in [0, 255] as float32 in [0, 1], with channels
            moved first). Its gradients and buffers are restored afterwards.
        num_batches: Full batches counted per measurement; fewer if an iteration has no more.
        num_warmup: Uncounted batches before them.
        warm: Measure training again at the end. The bytes are in memory then only if all data fit, or if
            every iteration gives the same images.
        now: The clock, in seconds.

    Raises:
        ConfigError: no batch is left to count, `num_batches` or `num_warmup` is too small, or a batch has no
            tensor.
    """
    require(num_batches >= 1, "num_batches", num_batches, "at least 1")
    require(num_warmup >= 0, "num_warmup", num_warmup, "0 or more")
    with _step_of(model) as step:

        def run(batches: Iterable[Any], step: Callable[[Any], Any]) -> _Counted:
            return _run(batches, step, num_batches, num_warmup, now)

        with _position_kept(loader):
            together = run(loader, step)
            alone = run(loader, lambda _: None)
            repeated = run(itertools.repeat(together.full_batch), step)
            again = run(loader, step) if warm else None
    return Stalls(
        num_batches=together.full.num_batches,
        together_images_per_s=together.images_per_s,
        loader_images_per_s=alone.images_per_s,
        model_images_per_s=repeated.images_per_s,
        warm_images_per_s=None if again is None else again.images_per_s,
    )


@contextmanager
def _position_kept(loader: Iterable[Any]) -> Iterator[None]:
    """Return a loader of ours to its epoch and batch: a policy by epochs would be ahead of training."""
    ours: Any = loader if hasattr(loader, "epoch") and hasattr(loader, "load_state_dict") else None
    state = None if ours is None else copy.deepcopy(ours.state_dict())
    try:
        yield
    finally:
        if state is not None:
            ours.load_state_dict(state)


@dataclass(slots=True)
class _OfSize:
    """Counted batches of one size, and their total time."""

    num_images: int
    """Images in each batch."""
    num_batches: int = 0
    elapsed_s: float = 0.0


class _Counted:
    """Seconds spent on batches, by batch size.

    Time is recorded when the size changes, not after each batch: waiting for the device every time would keep
    it from computing while the next batch is made.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._by_size: dict[int, _OfSize] = {}
        self._current: _OfSize | None = None
        self._began_s = self._ended_s = now()
        self.full = _OfSize(0)
        """The most common size; the larger of two equally common sizes."""
        self.full_batch: Any = None
        """The last batch of that size."""

    @property
    def num_batches(self) -> int:
        """Counted batches of all sizes."""
        return sum(one.num_batches for one in self._by_size.values())

    @property
    def images_per_s(self) -> float:
        """Images per second of full batches."""
        num_images = self.full.num_batches * self.full.num_images
        return num_images / self.full.elapsed_s if self.full.elapsed_s > 0 else math.inf

    def begin(self) -> None:
        """Start counting."""
        _wait_for_device()
        self._began_s = self._ended_s = self._now()

    def came(self, num_images: int) -> None:
        """Note the arrival of a batch of `num_images`."""
        if self._current is not None and self._current.num_images != num_images:
            self.settle()
        self._current = self._by_size.setdefault(num_images, _OfSize(num_images))

    def stepped(self, batch: Any) -> None:
        """Count the batch, whose step is done."""
        assert self._current is not None
        self._ended_s = self._now()
        self._current.num_batches += 1
        self.full = max(self.full, self._current, key=lambda one: (one.num_batches, one.num_images))
        if self.full is self._current:
            self.full_batch = batch

    def settle(self) -> None:
        """Record the time since the size last changed."""
        if _wait_for_device():
            self._ended_s = self._now()
        if self._current is not None:
            self._current.elapsed_s += self._ended_s - self._began_s
        self._began_s = self._ended_s


def _run(
    batches: Iterable[Any],
    step: Callable[[Any], Any],
    num_batches: int,
    num_warmup: int,
    now: Callable[[], float],
) -> _Counted:
    counted, num_seen = _Counted(now), 0

    def is_enough() -> bool:
        return counted.full.num_batches >= min(num_batches, _ENOUGH_BATCHES)

    for num_seen, batch in enumerate(_rounds(batches, is_enough), start=1):
        num_images = len(_first_tensor(batch))
        if num_seen <= num_warmup:
            step(batch)
            if num_seen == num_warmup:
                counted.begin()
            continue
        counted.came(num_images)
        step(batch)
        counted.stepped(batch)
        # If sizes keep varying, no size may ever reach `num_batches`.
        if counted.full.num_batches == num_batches or counted.num_batches == 2 * num_batches:
            break
    counted.settle()
    if not counted.num_batches:
        raise ConfigError(
            f"num_warmup={num_warmup}: the loader gave only {num_seen} batches, so none is left to measure. "
            "Lower num_warmup, or use a loader with more batches."
        )
    return counted


def _rounds(batches: Iterable[Any], is_enough: Callable[[], bool]) -> Iterator[Any]:
    """Iterate over the batches again and again until `is_enough()`; an iterator allows only one round."""
    came = True
    while came and not is_enough():
        came = False
        for batch in batches:
            came = True
            yield batch


@contextmanager
def _step_of(model: nn.Module | Callable[[Any], Any]) -> Iterator[Callable[[Any], Any]]:
    """Yield the update to measure; a module's gradients and buffers are restored at the end."""
    if not isinstance(model, nn.Module):
        yield model
        return
    module, parameters = model, list(model.parameters())
    gradients = [parameter.grad for parameter in parameters]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    device = parameters[0].device if parameters else torch.device("cpu")

    def step(batch: Any) -> None:
        module.zero_grad(set_to_none=True)
        output = module(_as_input(torch.as_tensor(_first_tensor(batch)).to(device, non_blocking=True)))
        _first_tensor(output).float().mean().backward()

    try:
        yield step
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient


def _as_input(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8:
        return images
    if images.ndim == 4 and images.shape[-1] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    return images.float() / 255


def _first_tensor(batch: Any) -> Any:
    """Return the tensor or array that a batch is or begins with. Raises ConfigError if there is none."""
    if isinstance(batch, Tensor | np.ndarray):
        return batch
    parts: list[Any] = []
    if isinstance(batch, Mapping):
        parts = list(batch.values())
    elif isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        parts = list(batch)
    elif hasattr(batch, "images"):
        parts = [batch.images]
    for part in parts:
        if isinstance(part, Tensor | np.ndarray | Mapping | list | tuple):
            return _first_tensor(part)
    raise ConfigError(
        f"the loader gave a {type(batch).__name__}: wanted a tensor or array, or a tuple, list or dict that "
        "begins with one."
    )


def _wait_for_device() -> bool:
    """Wait for the CUDA device if it is in use; return whether it is."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return False
    torch.cuda.synchronize()
    return True


def _longer_share(slower_per_s: float, faster_per_s: float) -> float:
    """Return the share of the slower one's time that the faster one saves; 0 if it is not slower."""
    return max(0.0, 1 - slower_per_s / faster_per_s)
