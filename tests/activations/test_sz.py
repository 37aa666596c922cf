"""SZ3 as a codec, if it is installed."""

import sys
from typing import Any

import pytest
import torch

from pcr_exp.activations.packed import pack
from pcr_exp.activations.sz import SzCodec
from pcr_exp.errors import ConfigError


def test_without_pysz_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pysz", None)
    with pytest.raises(ConfigError, match=r"activations.codec='sz' needs pysz.*pip install 'pcr-exp\[sz\]'"):
        SzCodec()


@pytest.fixture
def codec() -> Any:
    pytest.importorskip("pysz", reason="the extra `sz` is not installed")
    return SzCodec()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(0,), (1,), (33,), (2, 8, 12, 12), (2, 2, 3, 4, 5), ()])
def test_errors_are_bounded_and_zeros_exact(codec: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)).relu().to(dtype)
    for bound in (0.1, 1e-2, 1e-3):
        decoded = pack(values, codec, bound).unpack()
        assert (decoded.dtype, decoded.shape) == (dtype, values.shape)
        # SZ3's own arithmetic may exceed the bound by the rounding of float32.
        assert not values.numel() or (decoded.double() - values.double()).abs().max() <= bound * (1 + 1e-5)
        assert not decoded[values == 0].any()


def test_channels_last_and_what_is_not_finite_come_back(codec: Any) -> None:
    values = torch.randn(2, 6, 5, 4).to(memory_format=torch.channels_last)
    assert pack(values, codec, 0.01).unpack().stride() == values.stride()
    values[0, 0, 0, 0] = float("nan")
    assert pack(values, codec, 0.01).unpack().isnan().sum() == 1
