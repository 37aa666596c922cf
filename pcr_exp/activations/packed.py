"""A tensor while nobody needs it: which values are zero, exactly; and the others, as a codec has them."""

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
    """Shape, dtype and memory order of a tensor: a channels-last one comes back channels-last."""

    shape: torch.Size
    order: tuple[int, ...]
    """Dimensions from the slowest to the fastest in memory."""
    dtype: torch.dtype

    def restore(self, values: Tensor) -> Tensor:
        """Return values in memory order as the tensor they were."""
        return values.view(self.memory_shape).permute([self.order.index(i) for i in range(len(self.order))])

    @property
    def memory_shape(self) -> list[int]:
        """Sizes from the slowest dimension to the fastest."""
        return [self.shape[i] for i in self.order]


@dataclass(frozen=True, slots=True)
class NonZero:
    """Which values of a tensor are not zero; of a ReLU's result, its mask."""

    bits: Tensor
    """uint8, one bit per value in memory order."""
    layout: Layout

    def flags(self) -> Tensor:
        """Return bool [n], in memory order."""
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
        """Bytes of everything that it keeps."""
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
    """Keep only which values are not zero."""
    values, layout = in_memory_order(tensor)
    return NonZero(pack_bits((values != 0).flatten()), layout)


def in_memory_order(tensor: Tensor) -> tuple[Tensor, Layout]:
    """Return the tensor with its dimensions permuted so that it is contiguous, and how to undo that.

    A view with gaps is copied; it comes back without gaps.
    """
    strides: tuple[int, ...] = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda i: -strides[i]))
    values = tensor.permute(order).contiguous()
    return values, Layout(tensor.shape, order, tensor.dtype)
