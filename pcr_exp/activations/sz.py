"""SZ3 through pysz (extra `sz`), on the CPU: a compressor of the family that the paper uses.

It serves to measure compression ratios and accuracy, not speed, since tensors are copied to the host and
back. SZ does not preserve zeros, so decoding restores them from the mask of `pcr_exp.activations.packed`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcr_exp.activations.codec import Exact
from pcr_exp.config.components import register
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.errors import ConfigError
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class SzStream:
    """A whole tensor compressed by SZ3, zeros included."""

    stream: Tensor
    """uint8, on the host."""
    dtype: torch.dtype

    @property
    def tensors(self) -> list[Tensor]:
        return [self.stream]

    def decode(self, nonzero: Tensor) -> Tensor:
        from pysz import sz

        shape = _at_most_four(tuple(nonzero.shape))
        dtype = "float64" if self.dtype is torch.float64 else "float32"
        values, _ = sz.decompress(self.stream.numpy(), dtype, shape)
        decoded = torch.from_numpy(values).reshape(nonzero.shape).to(nonzero.device, self.dtype)
        return decoded.mul_(nonzero)


class SzCodec:
    """SZ3 with an absolute error bound."""

    def __init__(self) -> None:
        """Check that pysz can be imported.

        Raises:
            ConfigError: pysz cannot be imported.
        """
        try:
            import pysz  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"activations.codec='sz' needs pysz, which cannot be imported ({error}). "
                "Install it with: pip install 'pcr-exp[sz]'; or use activations.codec=quantise."
            ) from error

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> SzStream | Exact:
        """Encode with SZ3; return `Exact` if the tensor is empty or has a non-finite value."""
        from pysz import sz, szConfig, szErrorBoundMode

        if not values.numel() or not bool(values.isfinite().all()):
            return Exact(values[nonzero])
        config = szConfig()
        config.errorBoundMode = szErrorBoundMode.ABS
        # The decoded result is rounded to half precision, which at most doubles an error.
        halves = values.dtype not in (torch.float32, torch.float64)
        config.absErrorBound = bound / 2 if halves else bound
        host = values.cpu().float() if halves else values.cpu()
        stream, _ = sz.compress(host.view(_at_most_four(tuple(host.shape))).numpy(), config)
        # Copy, because the library may have allocated more than it used.
        return SzStream(torch.from_numpy(stream).clone(), values.dtype)


def _at_most_four(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in one to four dimensions, as SZ3 requires, with leading ones merged."""
    if len(shape) <= _MAX_DIMENSIONS:
        return shape or (1,)
    last = shape[1 - _MAX_DIMENSIONS :]
    return (math.prod(shape[: -len(last)]), *last)


@dataclass(kw_only=True, slots=True)
class SzConfig(ActivationsConfig):
    """Settings for the `sz` codec: none of its own, since `encode` receives the error bound."""

    name: str = "error_bounded"
    codec: str = "sz"


@register("activations.codec", "sz", SzConfig)
def open_sz(config: SzConfig) -> SzCodec:  # noqa: ARG001
    """Return the SZ3 codec, which needs no settings."""
    return SzCodec()
