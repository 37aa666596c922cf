"""Memory that is saved for backward; a storage that several tensors share counts once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def unique_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the tensors' storages, each storage counted once."""
    storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storage.nbytes() for storage in storages.values())


class LiveBytes(TorchDispatchMode):
    """Context manager that counts the bytes of live storages created in its `with` block.

    A storage counts from the operation that returns it until its last owner releases it: a view, a tensor
    saved by autograd, a compressed form. Temporary memory inside an operation does not count. On a GPU the
    allocator's own statistics include it; trust those there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0
        """Current bytes."""
        self.peak_bytes = 0
        """Maximum bytes so far."""
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        inputs = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in inputs:
                self._see(tensor.untyped_storage())
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._alive:
            return
        self._alive[key] = storage.nbytes()
        self.num_bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.num_bytes -= self._alive.pop(key)


class SavedBytes:
    """Mean and maximum bytes that forward passes save for backward, each storage counted once.

    One of every `interval` updates is measured, starting with the first, since measuring takes tens of
    microseconds per operation. Everything that the forward pass created and the loss still needs counts,
    compressed or not. The model's parameters existed before, so they do not count.
    """

    def __init__(self, interval: int) -> None:
        """Measure the updates whose number is a multiple of `interval`."""
        self._interval = interval
        self._num_measured = 0
        self._total = 0
        self._max = 0

    @contextmanager
    def measure(self, step: int) -> Iterator[None]:
        """Measure the forward pass of update `step` (counted from 0) up to its loss, if it is due."""
        if step % self._interval:
            yield
            return
        with LiveBytes() as live:
            yield
        self._num_measured += 1
        self._total += live.num_bytes
        self._max = max(self._max, live.num_bytes)

    def columns(self) -> dict[str, float | int | None]:
        """Return a row's columns over all measurements so far; None before the first."""
        measured = self._num_measured > 0
        return {
            "kept_bytes_mean": self._total / self._num_measured if measured else None,
            "kept_bytes_max": self._max if measured else None,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the values accumulated so far."""
        return {"num_looks": self._num_measured, "total": self._total, "max": self._max}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self._num_measured, self._total, self._max = state["num_looks"], state["total"], state["max"]
