"""Bytes that wait in memory for backward, every storage once: two tensors that share one count as one."""

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
    """Return the bytes of the storages that the tensors lie in."""
    storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storage.nbytes() for storage in storages.values())


class LiveBytes(TorchDispatchMode):
    """Counts, inside a `with`, the bytes of storages that were made in it and are still there.

    A storage counts from the operation that returns it until its last owner lets go, whoever that is: a view,
    a saved tensor of autograd, a compressed form. What an operation needs only while it runs does not count;
    on a GPU the allocator's own numbers do, and they are what to trust there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0
        """Now."""
        self.peak_bytes = 0
        """At most, so far."""
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


class KeptBytes:
    """Bytes of storages that forward passes left for backward, each storage once: mean and largest look.

    Every `interval` updates one is looked at, the first among them: looking takes some tens of microseconds
    per operation. Whatever the forward pass made and the loss still needs is counted, compressed or not; the
    model's parameters were there before, and are not.
    """

    def __init__(self, interval: int) -> None:
        """Look at the updates that `interval` divides."""
        self._interval = interval
        self._num_looks = 0
        self._total = 0
        self._max = 0

    @contextmanager
    def look(self, step: int) -> Iterator[None]:
        """Around the forward pass of update `step`, counted from 0, up to its loss."""
        if step % self._interval:
            yield
            return
        with LiveBytes() as live:
            yield
        self._num_looks += 1
        self._total += live.num_bytes
        self._max = max(self._max, live.num_bytes)

    def columns(self) -> dict[str, float | int | None]:
        """The columns of a row: over all looks so far, None before the first."""
        looked = self._num_looks > 0
        return {
            "kept_bytes_mean": self._total / self._num_looks if looked else None,
            "kept_bytes_max": self._max if looked else None,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"num_looks": self._num_looks, "total": self._total, "max": self._max}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._num_looks, self._total, self._max = state["num_looks"], state["total"], state["max"]
