"""SZ3 through pysz (extra `sz`): the compressor of the paper's family, on the CPU.

It proves ratios and accuracy, not speed: tensors go to the host and back. SZ does not keep zeros; here they
are stored beside it (`pcr_exp.activations.packed`) and put back.
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
    """A whole tensor in SZ3's form, zeros included."""

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
    """SZ3 with an absolute bound."""

    def __init__(self) -> None:
        """Check that pysz can be imported.

        Raises:
            ConfigError: it cannot.
        """
        try:
            import pysz  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"activations.codec='sz' needs pysz, which cannot be imported ({error}). "
                "Install it with: pip install 'pcr-exp[sz]'; or use activations.codec=quantise."
            ) from error

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> SzStream | Exact:
        """Encode; `Exact` for an empty tensor and for values that are not finite."""
        from pysz import sz, szConfig, szErrorBoundMode

        if not values.numel() or not bool(values.isfinite().all()):
            return Exact(values[nonzero])
        config = szConfig()
        config.errorBoundMode = szErrorBoundMode.ABS
        # Half precision: the result is rounded once more, which at most doubles an error.
        halves = values.dtype not in (torch.float32, torch.float64)
        config.absErrorBound = bound / 2 if halves else bound
        host = values.cpu().float() if halves else values.cpu()
        stream, _ = sz.compress(host.view(_at_most_four(tuple(host.shape))).numpy(), config)
        # A copy: the library may have reserved more than it used.
        return SzStream(torch.from_numpy(stream).clone(), values.dtype)


def _at_most_four(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in one to four dimensions, which SZ3 takes."""
    if len(shape) <= _MAX_DIMENSIONS:
        return shape or (1,)
    last = shape[1 - _MAX_DIMENSIONS :]
    return (math.prod(shape[: -len(last)]), *last)


@dataclass(kw_only=True, slots=True)
class SzConfig(ActivationsConfig):
    """No settings but the bounds, which the codec is given with the values."""

    name: str = "error_bounded"
    codec: str = "sz"


@register("activations.codec", "sz", SzConfig)
def open_sz(config: SzConfig) -> SzCodec:  # noqa: ARG001
    """SZ3 is asked for as it comes."""
    return SzCodec()
