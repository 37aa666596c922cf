"""Codecs: bounded errors, exact zeros, exact layouts, and sizes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pcr_exp.activations.codec import Codec, Exact, LosslessCodec
from pcr_exp.activations.kept import unique_bytes
from pcr_exp.activations.packed import pack, pack_nonzero
from pcr_exp.activations.quantise import QuantiseCodec, Quantised, half_step, pack_integers, unpack_integers
from pcr_exp.system.bits import pack_bits, unpack_bits

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(0,), (1,), (7,), (2, 3), (2, 3, 5, 4), (1, 1, 1, 1), (3, 8, 1, 1), (2, 2, 3, 2, 2)]


def activations(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, *, seed: int = 0, signed: bool = False
) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (values if signed else values.relu()).to(dtype)


def largest_error(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0


@given(st.lists(st.booleans(), max_size=100))
def test_bits_come_back_and_lie_where_they_are_said_to(flags: list[bool]) -> None:
    packed = pack_bits(torch.tensor(flags, dtype=torch.bool))
    assert packed.numpy().tobytes() == np.packbits(np.array(flags, dtype=bool), bitorder="little").tobytes()
    assert unpack_bits(packed, len(flags)).tolist() == flags


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**15 - 1), max_size=200), st.integers(0, 15))
def test_integers_come_back(values: list[int], shift: int) -> None:
    integers = torch.tensor([value >> shift for value in values], dtype=torch.int16)
    assert torch.equal(unpack_integers(pack_integers(integers)), integers)


def test_integers_cost_the_width_of_their_block() -> None:
    values = torch.cat([torch.zeros(32), torch.full((32,), 5), torch.full((32,), 1000)]).to(torch.int16)
    packed = pack_integers(values)
    assert packed.planes.numel() == (0 + 3 + 10) * 32 // 8
    assert packed.widths.numel() == 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codec", [QuantiseCodec(), LosslessCodec()])
@pytest.mark.parametrize("signed", [False, True])
def test_errors_are_bounded_and_zeros_exact(
    codec: Codec, shape: tuple[int, ...], dtype: torch.dtype, signed: bool
) -> None:
    values = activations(shape, dtype, signed=signed)
    for bound in (1.0, 0.1, 1e-2, 1e-3, 1e-5, 1e-9):
        decoded = pack(values, codec, bound).unpack()
        assert (decoded.dtype, decoded.shape) == (dtype, values.shape)
        assert largest_error(decoded, values) <= bound
        assert torch.equal(decoded == 0, values == 0)
        assert torch.equal(decoded.sign(), values.sign())


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.floats(-1e4, 1e4, width=16), min_size=1, max_size=80),
    st.floats(1e-6, 1e3),
)
def test_no_value_moves_by_more_than_the_bound(dtype: torch.dtype, values: list[float], bound: float) -> None:
    tensor = torch.tensor(values, dtype=dtype)
    decoded = pack(tensor, QuantiseCodec(), bound).unpack()
    assert largest_error(decoded, tensor) <= bound
    assert not decoded[tensor == 0].any()


def test_errors_are_uniform() -> None:
    values = activations((64, 64, 14, 14))
    error = (pack(values, QuantiseCodec(), 0.01).unpack() - values)[values != 0] / 0.01
    assert float(error.mean()) == pytest.approx(0, abs=0.01)
    assert float(error.std()) == pytest.approx(1 / math.sqrt(3), rel=0.01)
    counts = torch.histc(error, bins=10, min=-1, max=1)
    assert float(counts.min() / counts.max()) > 0.95


def test_a_bound_wider_than_the_data_does_not_shift_it() -> None:
    values = activations((64, 64, 14, 14))
    error = (pack(values, QuantiseCodec(), 100.0).unpack() - values)[values != 0]
    assert abs(float(error.mean())) < 0.1 * float(values[values != 0].mean())


def test_no_bound_can_be_kept_better_than_by_the_values_themselves() -> None:
    values = activations((4, 8, 9, 9), signed=True)
    packed = pack(values, QuantiseCodec(), 1e-9)
    assert isinstance(packed.payload, Exact)
    assert torch.equal(packed.unpack(), values)


@pytest.mark.parametrize("codec", [QuantiseCodec(), LosslessCodec()])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_comes_back(codec: Codec, bad: float) -> None:
    values = activations((3, 4, 5, 5))
    values[1, 2, 3, 4] = bad
    assert torch.equal(pack(values, codec, 0.1).unpack().nan_to_num(7, 8, 9), values.nan_to_num(7, 8, 9))


@pytest.mark.parametrize("codec", [QuantiseCodec(), LosslessCodec()])
def test_memory_order_comes_back(codec: Codec) -> None:
    values = activations((2, 6, 5, 4))
    for tensor in (values, values.to(memory_format=torch.channels_last), values.permute(3, 1, 0, 2)):
        decoded = pack(tensor, codec, 1e-9).unpack()
        assert torch.equal(decoded, tensor)
        assert decoded.stride() == tensor.stride()
    gaps = values[:, ::2]
    assert torch.equal(pack(gaps, codec, 1e-9).unpack(), gaps)


def test_a_mask_is_what_a_relu_asks_for() -> None:
    values = activations((2, 6, 5, 4), torch.bfloat16).to(memory_format=torch.channels_last)
    mask = pack_nonzero(values).unpack()
    assert mask.dtype is torch.bfloat16 and mask.stride() == values.stride()
    assert torch.equal(mask > 0, values > 0)


def test_ratios_are_near_what_information_allows() -> None:
    """Half-normal values of deviation 1: log2(1 / 2h) + log2(pi e / 2) / 2 bits each, and 1 to mark zeros."""
    values = activations((64, 64, 14, 14))
    for bound in (0.1, 0.01, 0.001):
        bits = 1 + 0.5 * (math.log2(1 / (2 * bound)) + 0.5 * math.log2(math.pi * math.e / 2))
        packed = pack(values, QuantiseCodec(), bound)
        assert bits < 32 * packed.num_bytes / packed.raw_bytes < bits + 0.5
    exact = pack(values, LosslessCodec(), 1.0)
    assert exact.num_bytes == pytest.approx((1 / 32 + 0.5) * values.nbytes, rel=0.01)


def test_signs_are_kept_only_where_there_are_any() -> None:
    payload = QuantiseCodec().encode(activations((99,)), activations((99,)) != 0, 0.01)
    assert isinstance(payload, Quantised) and payload.negative is None
    signed = pack(activations((99,), signed=True), QuantiseCodec(), 0.01)
    assert isinstance(signed.payload, Quantised) and signed.payload.negative is not None


def test_bytes_are_those_of_what_is_kept() -> None:
    packed = pack(activations((4, 8, 9, 9)), QuantiseCodec(), 0.01)
    payload = packed.payload
    assert isinstance(payload, Quantised)
    assert packed.num_bytes == sum(
        tensor.untyped_storage().nbytes()
        for tensor in (packed.nonzero.bits, payload.cells.widths, payload.cells.planes)
    )
    assert packed.raw_bytes == 4 * 8 * 9 * 9 * 4


def test_a_storage_counts_once() -> None:
    one = torch.zeros(100)
    assert unique_bytes([one, one[10:], one.view(10, 10), torch.zeros(5)]) == 400 + 20


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_a_step_leaves_room_for_rounding(dtype: torch.dtype) -> None:
    assert half_step(0.01, 1.0, 1.0, dtype) < 0.01
    assert half_step(0.01, 1e9, 1e9, torch.float32) == pytest.approx(0.0048)
    assert half_step(10.0, 1.0, 0.5, dtype) == 0.25


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("signed", [False, True])
def test_a_gpu_keeps_what_it_packed_on_itself(dtype: torch.dtype, signed: bool) -> None:
    values = activations((8, 16, 14, 14), dtype, signed=signed).cuda()
    values = values.to(memory_format=torch.channels_last)
    packed = pack(values, QuantiseCodec(), 0.01)
    assert all(tensor.is_cuda for tensor in (packed.nonzero.bits, *packed.payload.tensors))
    decoded = packed.unpack()
    assert decoded.is_cuda and decoded.stride() == values.stride()
    assert largest_error(decoded, values) <= 0.01
    on_cpu = pack(values.cpu(), QuantiseCodec(), 0.01)
    assert on_cpu.num_bytes == pytest.approx(packed.num_bytes, rel=0.01)
