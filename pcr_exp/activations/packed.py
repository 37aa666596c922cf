"""Compressed tensors: an exact zero mask, and the values as encoded by a codec."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pcr_exp.activations.codec import Codec, Payload
from pcr_exp.activations.kept import unique_bytes
from pcr_exp.system.bits import pack_bits, unpack_bits


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, dtype and memory order of a tensor; a channels-last tensor is restored as channels-last."""

    shape: torch.Size
    order: tuple[int, ...]
    """Dimensions from the slowest-varying to the fastest-varying in memory."""
    dtype: torch.dtype

    def restore(self, values: Tensor) -> Tensor:
        """Turn values in memory order back into a tensor of the original shape and memory order."""
        return values.view(self.memory_shape).permute([self.order.index(i) for i in range(len(self.order))])

    @property
    def memory_shape(self) -> list[int]:
        """Dimension sizes, from the slowest-varying to the fastest-varying."""
        return [self.shape[i] for i in self.order]


@dataclass(frozen=True, slots=True)
class NonZero:
    """Bit mask of a tensor's nonzero values; for a ReLU's result, the mask that its backward needs."""

    bits: Tensor
    """uint8, one bit per value in memory order."""
    layout: Layout

    def flags(self) -> Tensor:
        """Return the mask as bool [n], in memory order."""
        return unpack_bits(self.bits, math.prod(self.layout.shape))

    def unpack(self) -> Tensor:
        """Return 1 where the tensor is not zero, else 0, in the tensor's shape and dtype."""
        return self.layout.restore(self.flags().to(self.layout.dtype))


@dataclass(frozen=True, slots=True)
class Packed:
    """A compressed tensor."""

    nonzero: NonZero
    payload: Payload
    raw_bytes: int
    num_nonzero: int

    @property
    def num_bytes(self) -> int:
        """Size of the mask and the payload in bytes."""
        return unique_bytes([self.nonzero.bits, *self.payload.tensors])

    def unpack(self) -> Tensor:
        """Return a tensor of the original's shape, dtype, device and memory order."""
        layout = self.nonzero.layout
        flags = self.nonzero.flags().view(layout.memory_shape)
        return layout.restore(self.payload.decode(flags))


def pack(tensor: Tensor, codec: Codec, bound: float) -> Packed:
    """Compress a floating-point tensor of any shape and memory order."""
    values, layout = in_memory_order(tensor)
    nonzero = values != 0
    bits = NonZero(pack_bits(nonzero.flatten()), layout)
    payload = codec.encode(values, nonzero, bound)
    return Packed(bits, payload, tensor.numel() * tensor.element_size(), int(nonzero.sum()))


def pack_nonzero(tensor: Tensor) -> NonZero:
    """Return only the mask of nonzero values."""
    values, layout = in_memory_order(tensor)
    return NonZero(pack_bits((values != 0).flatten()), layout)


def in_memory_order(tensor: Tensor) -> tuple[Tensor, Layout]:
    """Return the tensor permuted to be contiguous, and the layout that undoes this.

    A view with gaps is copied, and restored without gaps.
    """
    strides: tuple[int, ...] = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda i: -strides[i]))
    values = tensor.permute(order).contiguous()
    return values, Layout(tensor.shape, order, tensor.dtype)
