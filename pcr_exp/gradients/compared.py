"""The codecs that 3LC is compared with.

Floating-point numbers of 32 or 16 bits; eight bits, the whole numbers -127..127 times one scale; one bit, a
value's side of zero (1-bit SGD, Seide et al. 2014; "MQE 1-bit" in the 3LC paper); three values drawn at
random, right on average (TernGrad, Wen et al. 2017), in 3LC's quartic bytes; and the largest values only,
with a bitmap that says which ("sparsification" in the 3LC paper).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pcr_exp.config.check import SHARE
from pcr_exp.config.components import register
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.errors import GradientError
from pcr_exp.gradients.codec import joined, nan_message, nan_values, parted
from pcr_exp.gradients.threelc import pack, ternary_scale, unpack
from pcr_exp.system.bits import bitmap_size, pack_bits, unpack_bits
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class Floats:
    """A message is the values, one after the other, in one floating-point type."""

    feedback = False

    def __init__(self, dtype: torch.dtype) -> None:
        """Send in this type; what is too large for it arrives as infinity, as in PyTorch's own hooks."""
        self.dtype = dtype

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`. Values that are not finite are sent one by one, as they are."""
        narrow = values.to(self.dtype)
        return narrow.view(torch.uint8), narrow.to(torch.float32)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        wanted = num_values * self.dtype.itemsize
        if len(message) != wanted:
            raise GradientError(f"{len(message)} bytes for {num_values} values: wanted {wanted}.")
        # A slice of a larger message may begin anywhere; numbers may not.
        return message.clone().view(self.dtype).to(torch.float32)


@register("gradients", "none", GradientsConfig)
@register("gradients", "fp16", GradientsConfig)
@register("gradients", "bf16", GradientsConfig)
def open_floats(config: GradientsConfig, seed: int) -> Floats:  # noqa: ARG001
    """The three have no settings but their names."""
    return Floats({"none": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[config.name])


_LARGEST = 127


class Int8:
    """A message is max|values| (float32), then round(127 values / max), one int8 each; a NaN stands alone."""

    feedback = False

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        scale = ternary_scale(values, 1.0)
        if math.isnan(scale):
            return nan_message(values, 1)
        codes = (values / scale).mul_(_LARGEST).round_() if scale > 0 else torch.zeros_like(values)
        return joined([scale], codes.to(torch.int8).view(torch.uint8)), _values(codes, scale)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (scale,), payload = parted(message, 1)
        if math.isnan(scale):
            return nan_values(message, num_values)
        if len(payload) != num_values:
            raise GradientError(f"{len(payload)} eight-bit codes: wanted {num_values}.")
        return _values(payload.view(torch.int8).to(torch.float32), scale)


def _values(codes: Tensor, scale: float) -> Tensor:
    return (codes / _LARGEST).mul_(scale)


@register("gradients", "int8", GradientsConfig)
def open_int8(config: GradientsConfig, seed: int) -> Int8:  # noqa: ARG001
    """Has no settings."""
    return Int8()


class OneBit:
    """A message is two float32 and a bitmap: the mean of values >= 0, mean of those below, and who is which.

    The means are what makes the squared error least. One scale per tensor, where Seide et al. have one per
    column. The bitmap is missing if a mean is NaN.
    """

    feedback = True

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        positive = values >= 0
        num_positive = int(positive.sum())
        high = values.clamp(min=0).sum().item() / max(num_positive, 1)
        low = values.clamp(max=0).sum().item() / max(len(values) - num_positive, 1)
        # Infinities of either sign are caught apart, and so is a sum beyond float32's range.
        if not math.isfinite(high) or not math.isfinite(low):
            return nan_message(values, 2)
        message = joined([high, low], pack_bits(positive))
        (high, low), _ = parted(message, 2)
        return message, torch.where(positive, high, low)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (high, low), bitmap = parted(message, 2)
        if math.isnan(high):
            return nan_values(message, num_values)
        if len(bitmap) != bitmap_size(num_values):
            wanted = bitmap_size(num_values)
            raise GradientError(f"{len(bitmap)} bytes of bits for {num_values} values: wanted {wanted}.")
        return torch.where(unpack_bits(bitmap, num_values), high, low)


@register("gradients", "onebit", GradientsConfig)
def open_onebit(config: GradientsConfig, seed: int) -> OneBit:  # noqa: ARG001
    """Has no settings."""
    return OneBit()


class TernaryStochastic:
    """A message is max|values| (float32), then quartic bytes; the payload is empty if the scale is NaN.

    A value v becomes sign(v) max with probability |v| / max, else 0: its mean is v, so nothing is fed back.
    """

    feedback = False

    def __init__(self, seed: int) -> None:
        """Draw from a stream of this seed; each sender needs its own, so that errors average out."""
        self.generator = torch.Generator().manual_seed(seed)

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        scale = ternary_scale(values, 1.0)
        if math.isnan(scale):
            return nan_message(values, 1)
        # On the CPU wherever the values are, so that a device does not change what is drawn.
        draws = torch.rand(values.shape, generator=self.generator).to(values.device)
        ternary = values.sign().mul_(draws * scale < values.abs())
        return joined([scale], pack((ternary + 1).to(torch.uint8))), ternary.mul_(scale)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (scale,), packed = parted(message, 1)
        if math.isnan(scale):
            return nan_values(message, num_values)
        return unpack(packed, num_values).float().sub_(1).mul_(scale)


@register("gradients", "ternary_stochastic", GradientsConfig)
def open_ternary_stochastic(config: GradientsConfig, seed: int) -> TernaryStochastic:  # noqa: ARG001
    """Draws from a stream of the sender's own seed."""
    return TernaryStochastic(seed)


_VALUE_BYTES = 4


@dataclass(kw_only=True, slots=True)
class TopKConfig(GradientsConfig):
    """Which share of a tensor's values is sent."""

    name: str = "topk"
    fraction: Annotated[float, SHARE] = 0.25
    """Share of a tensor's values that is sent."""


class TopK:
    """A message is a bitmap of one bit per value, then the chosen values (float32), in their order.

    Chosen are the ceil(fraction n) largest in magnitude. The message is empty if a value is not finite.
    """

    feedback = True

    def __init__(self, fraction: float) -> None:
        """Send this share of the values, in (0, 1]."""
        self.fraction = fraction

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        if not torch.isfinite(values).all():
            return nan_message(values, 0)
        chosen = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        largest = values.abs().topk(math.ceil(self.fraction * len(values)), sorted=False).indices
        chosen[largest] = True
        message = torch.cat([pack_bits(chosen), values[chosen].view(torch.uint8)])
        return message, torch.where(chosen, values, 0)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        if num_values and not len(message):
            return nan_values(message, num_values)
        size = bitmap_size(num_values)
        chosen = unpack_bits(message[:size], num_values)
        wanted = size + _VALUE_BYTES * int(chosen.sum())
        if len(chosen) != num_values or len(message) != wanted:
            raise GradientError(f"{len(message)} bytes of sparse values: the bitmap wants {wanted}.")
        values = torch.zeros(num_values, device=message.device)
        values[chosen] = message[size:].clone().view(torch.float32)
        return values


@register("gradients", "topk", TopKConfig)
def open_topk(config: TopKConfig, seed: int) -> TopK:  # noqa: ARG001
    """Draws nothing."""
    return TopK(config.fraction)
