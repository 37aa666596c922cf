"""The codecs that 3LC is compared with.

`Floats`: floating-point numbers of 32 or 16 bits. `Int8`: integers -127..127 times one scale. `OneBit`: the
sign of a value (1-bit SGD, Seide et al. 2014; "MQE 1-bit" in the 3LC paper). `TernaryStochastic`: unbiased
random rounding to three values (TernGrad, Wen et al. 2017), in 3LC's quartic bytes. `TopK`: only the largest
values, with a bitmap of their positions ("sparsification" in the 3LC paper).
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
    """A message is the sequence of values in one floating-point type."""

    feedback = False

    def __init__(self, dtype: torch.dtype) -> None:
        """Send values as `dtype`. Those beyond its range arrive as infinity, as in PyTorch's own hooks."""
        self.dtype = dtype

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`. Unlike there, values that are not finite are sent individually, unchanged."""
        narrow = values.to(self.dtype)
        return narrow.view(torch.uint8), narrow.to(torch.float32)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        wanted = num_values * self.dtype.itemsize
        if len(message) != wanted:
            raise GradientError(f"{len(message)} bytes for {num_values} values: wanted {wanted}.")
        # Cloned for alignment: a slice of a larger message may begin at any byte.
        return message.clone().view(self.dtype).to(torch.float32)


@register("gradients", "none", GradientsConfig)
@register("gradients", "fp16", GradientsConfig)
@register("gradients", "bf16", GradientsConfig)
def open_floats(config: GradientsConfig, seed: int) -> Floats:  # noqa: ARG001
    """Open `none`, `fp16` or `bf16`, which have no settings but their names."""
    return Floats({"none": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[config.name])


_LARGEST = 127


class Int8:
    """A message is max|values| (float32), then round(127 values / max) as int8; no payload follows a NaN."""

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
    """Open the codec, which has no settings."""
    return Int8()


class OneBit:
    """A message is the means of values >= 0 and of values < 0 (float32), then a bitmap of those >= 0.

    The means minimise the squared error. They are per tensor, where Seide et al. compute them per column. The
    bitmap is missing if a mean is NaN.
    """

    feedback = True

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        positive = values >= 0
        num_positive = int(positive.sum())
        high = values.clamp(min=0).sum().item() / max(num_positive, 1)
        low = values.clamp(max=0).sum().item() / max(len(values) - num_positive, 1)
        # Separate sums expose infinities of either sign, and sums beyond float32's range.
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
            raise GradientError(f"a bitmap of {len(bitmap)} bytes for {num_values} values: wanted {wanted}.")
        return torch.where(unpack_bits(bitmap, num_values), high, low)


@register("gradients", "onebit", GradientsConfig)
def open_onebit(config: GradientsConfig, seed: int) -> OneBit:  # noqa: ARG001
    """Open the codec, which has no settings."""
    return OneBit()


class TernaryStochastic:
    """A message is max|values| (float32), then quartic bytes; the payload is empty if the maximum is NaN.

    A value v becomes sign(v) max with probability |v| / max, else 0. Its mean is v, so it needs no feedback.
    """

    feedback = False

    def __init__(self, seed: int) -> None:
        """Seed the random generator; each sender needs its own seed, so that errors average out."""
        self.generator = torch.Generator().manual_seed(seed)

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        scale = ternary_scale(values, 1.0)
        if math.isnan(scale):
            return nan_message(values, 1)
        # Always drawn on the CPU, so that the numbers do not depend on the device.
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
    """Open the codec, which draws from a generator with the sender's own seed."""
    return TernaryStochastic(seed)


_VALUE_BYTES = 4


@dataclass(kw_only=True, slots=True)
class TopKConfig(GradientsConfig):
    """Top-k sparsification: only a share of a tensor's values is sent."""

    name: str = "topk"
    fraction: Annotated[float, SHARE] = 0.25
    """Share of a tensor's values that is sent."""


class TopK:
    """A message is a bitmap of one bit per value, then the chosen values (float32), in their order.

    The ceil(fraction n) largest in magnitude are chosen. The message is empty if a value is not finite.
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
            raise GradientError(f"{len(message)} bytes of sparse values: the bitmap requires {wanted}.")
        values = torch.zeros(num_values, device=message.device)
        values[chosen] = message[size:].clone().view(torch.float32)
        return values


@register("gradients", "topk", TopKConfig)
def open_topk(config: TopKConfig, seed: int) -> TopK:  # noqa: ARG001
    """Open the codec, which draws nothing at random."""
    return TopK(config.fraction)
