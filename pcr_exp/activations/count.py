"""Bytes of memory, every storage once: two tensors that share one cost as much as one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
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
