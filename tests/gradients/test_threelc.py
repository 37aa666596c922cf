"""3LC's codec against a literal implementation of the paper, and the paper's own numbers."""

import math
import struct

import pytest
import threelc_oracle as oracle
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pcr_exp.errors import GradientError
from pcr_exp.gradients.threelc import (
    ThreeLC,
    lengthen,
    pack,
    packed_size,
    quantise,
    shorten,
    ternary_scale,
    unpack,
)

SIZES = (0, 1, 2, 4, 5, 6, 9, 10, 14 * 5, 14 * 5 + 1, 15 * 5, 16 * 5, 28 * 5 + 3, 1000)
SPARSITIES = (1.0, 1.5, 1.75, 1.9, 1.999)
LARGEST_SPARSITY = 2 - 2**-23

# The ends of float32's range have their own rules and tests.
floats = st.floats(-(2.0**126), 2.0**126, width=32, allow_subnormal=False).filter(
    lambda value: value == 0 or abs(value) > 1e-30
)
tensors = st.one_of(
    st.lists(floats, max_size=200),
    st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, -1.0, 1.0]), max_size=400),
)


def split(message: Tensor) -> tuple[float, list[int]]:
    data = bytes(message.tolist())
    return struct.unpack("=f", data[:4])[0], list(data[4:])


@settings(max_examples=300, deadline=None)
@given(tensors, st.sampled_from([*SPARSITIES, LARGEST_SPARSITY]))
def test_every_byte_and_value_is_the_papers(values: list[float], sparsity: float) -> None:
    scale, quartic, short, residuals = oracle.encode(values, sparsity)
    tensor = torch.tensor(values, dtype=torch.float32)
    for zero_run, payload in ((False, quartic), (True, short)):
        codec = ThreeLC(sparsity, zero_run=zero_run)
        message, sent = codec.encode(tensor)
        assert split(message) == (scale, payload)
        assert sent.tolist() == oracle.decode(short, scale, len(values))
        assert (tensor - sent).tolist() == residuals
        assert codec.decode(message, len(values)).tolist() == sent.tolist()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sparsity", SPARSITIES)
def test_round_trip_of_any_size(size: int, sparsity: float) -> None:
    values = torch.randn(size, generator=torch.Generator().manual_seed(size))
    codec = ThreeLC(sparsity)
    message, sent = codec.encode(values)
    assert torch.equal(codec.decode(message, size), sent)
    assert sent.shape == (size,)
    if size:
        scale = split(message)[0]
        assert sent.count_nonzero() >= 1
        assert (values - sent).abs().max() <= scale / 2


@given(st.lists(st.integers(0, 2), max_size=300))
def test_quartic_is_the_papers_and_comes_back(digits: list[int]) -> None:
    packed = pack(torch.tensor(digits, dtype=torch.uint8))
    assert packed.tolist() == oracle.quartic_bytes([digit - 1 for digit in digits])
    assert unpack(packed, len(digits)).tolist() == digits


@given(st.lists(st.tuples(st.integers(0, 45), st.integers(0, 242)), max_size=30), st.integers(0, 45))
def test_zero_runs_are_the_papers_and_come_back(runs: list[tuple[int, int]], tail: int) -> None:
    packed = [byte for length, literal in runs for byte in [*[121] * length, literal]] + [121] * tail
    short = shorten(torch.tensor(packed, dtype=torch.uint8))
    assert short.tolist() == oracle.zero_run_bytes(packed)
    assert lengthen(short, len(packed)).tolist() == packed


@pytest.mark.parametrize("length", range(44))
def test_every_run_length(length: int) -> None:
    short = shorten(torch.full((length,), 121, dtype=torch.uint8)).tolist()
    rest = {0: [], 1: [121]}.get(length % 14, [243 + length % 14 - 2])
    assert short == [255] * (length // 14) + rest


def test_twenty_times_before_zero_run_encoding() -> None:
    values = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    message, _ = ThreeLC(1.0, zero_run=False).encode(values)
    assert 4 * len(values) / (len(message) - 4) == 20
    assert 8 * (len(message) - 4) / len(values) == 1.6


def test_two_hundred_and_eighty_times_for_zeros() -> None:
    num_values = 14 * 5 * 1000
    message, _ = ThreeLC(1.0).encode(torch.zeros(num_values))
    assert 4 * num_values / (len(message) - 4) == 280


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("size", SIZES)
def test_zeros_divide_nothing_and_stay_zeros(size: int, sparsity: float) -> None:
    message, sent = ThreeLC(sparsity).encode(torch.zeros(size))
    assert split(message)[0] == 0.0
    assert sent.tolist() == [0.0] * size
    assert ThreeLC(sparsity).decode(message, size).tolist() == [0.0] * size


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_one_bad_value_makes_the_whole_tensor_nan(bad: float, place: int) -> None:
    values = torch.arange(7, dtype=torch.float32)
    values[place] = bad
    message, sent = ThreeLC(1.5).encode(values)
    assert len(message) == 4
    assert sent.isnan().all()
    decoded = ThreeLC(1.5).decode(message, 7)
    assert decoded.shape == (7,)
    assert decoded.isnan().all()


def test_values_at_the_end_of_float32_are_sent_as_its_largest_number() -> None:
    largest = torch.finfo(torch.float32).max
    values = torch.tensor([largest, -0.9 * largest, 0.4 * largest])
    message, sent = ThreeLC(1.9).encode(values)
    assert split(message)[0] == largest
    assert sent.tolist() == [largest, -largest, 0.0]
    assert torch.isfinite(values - sent).all()


def test_values_too_small_to_scale_are_kept() -> None:
    values = torch.tensor([1e-45, -3e-42, 0.0])
    message, sent = ThreeLC(1.0).encode(values)
    assert split(message)[0] == 0.0
    assert sent.tolist() == [0.0, 0.0, 0.0]


def test_the_largest_value_is_always_sent() -> None:
    generator = torch.Generator().manual_seed(0)
    for mantissa in (1 + torch.rand(2000, generator=generator)).tolist():
        value = torch.tensor([mantissa])
        assert quantise(value, ternary_scale(value, LARGEST_SPARSITY)).tolist() == [1.0]


@pytest.mark.parametrize(
    ("message", "num_values", "wanted"),
    [
        ([], 5, "a gradient message of 0 bytes: wanted a header of 4"),
        ([0, 0, 128, 63, 121], 10, "zero-run codes for 1 bytes: wanted 2"),
        ([0, 0, 128, 63, 255], 10, "zero-run codes for 14 bytes: wanted 2"),
        ([0, 0, 128, 63], 1, "zero-run codes for 0 bytes: wanted 1"),
    ],
)
def test_a_damaged_message_is_refused(message: list[int], num_values: int, wanted: str) -> None:
    with pytest.raises(GradientError, match=wanted):
        ThreeLC(1.0).decode(torch.tensor(message, dtype=torch.uint8), num_values)


def test_damaged_quartic_bytes_are_refused() -> None:
    with pytest.raises(GradientError, match="2 quartic bytes for 5 values: wanted 1"):
        unpack(torch.tensor([0, 0], dtype=torch.uint8), 5)
    for byte in (243, 250):
        with pytest.raises(GradientError, match=f"a quartic byte of {byte}: wanted at most 242"):
            unpack(torch.tensor([byte], dtype=torch.uint8), 5)
    assert packed_size(0) == 0
