"""Properties of every codec, and further guarantees of each."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pcr_exp.errors import ConfigError, GradientError
from pcr_exp.gradients.codec import Codec, PowerSGDConfig, open_codec
from pcr_exp.gradients.compared import Floats, Int8, OneBit, TernaryStochastic, TopK
from pcr_exp.gradients.tensors import Feedback
from pcr_exp.gradients.threelc import ThreeLC
from pcr_exp.system.bits import pack_bits, unpack_bits

SIZES = (0, 1, 4, 5, 7, 8, 9, 71, 1000)
CODECS: dict[str, Codec] = {
    "float32": Floats(torch.float32),
    "fp16": Floats(torch.float16),
    "bf16": Floats(torch.bfloat16),
    "int8": Int8(),
    "ternary_stochastic": TernaryStochastic(seed=0),
    "onebit": OneBit(),
    "topk": TopK(0.25),
    "threelc": ThreeLC(1.5),
}
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
WITH_FEEDBACK = [name for name, codec in CODECS.items() if codec.feedback]


def normal(size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@every_codec
@pytest.mark.parametrize("size", SIZES)
def test_what_arrives_is_what_the_sender_thinks(codec: Codec, size: int) -> None:
    message, sent = codec.encode(normal(size))
    assert message.dtype == torch.uint8
    assert message.ndim == 1
    assert sent.dtype == torch.float32
    assert torch.equal(codec.decode(message, size), sent)


@every_codec
def test_a_message_may_lie_anywhere_in_a_larger_one(codec: Codec) -> None:
    message, sent = codec.encode(normal(71))
    around = torch.cat([torch.zeros(3, dtype=torch.uint8), message])
    assert torch.equal(codec.decode(around[3:], 71), sent)


@every_codec
@pytest.mark.parametrize("size", SIZES)
def test_zeros_stay_zeros(codec: Codec, size: int) -> None:
    message, sent = codec.encode(torch.zeros(size))
    assert torch.equal(sent, torch.zeros(size))
    assert torch.equal(codec.decode(message, size), sent)


@every_codec
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_value_is_seen_by_the_receiver(codec: Codec, bad: float) -> None:
    values = normal(71)
    values[70] = bad
    message, sent = codec.encode(values)
    decoded = codec.decode(message, 71)
    assert not decoded.isfinite().all()
    assert sent.isnan().tolist() == decoded.isnan().tolist()
    if codec.feedback:
        assert decoded.isnan().all()


@pytest.mark.parametrize("name", WITH_FEEDBACK)
def test_feedback_sends_everything_in_the_end(name: str) -> None:
    feedback = Feedback(CODECS[name])
    inputs, sent = torch.zeros(200).double(), torch.zeros(200).double()
    for step in range(100):
        values = normal(200, seed=step)
        inputs += values
        sent += feedback.encode(values)[1]
    residual = feedback.residual
    assert residual is not None
    torch.testing.assert_close(sent + residual, inputs, rtol=0, atol=1e-4)
    # The residual stays bounded while the sum of sent values grows.
    assert residual.abs().max() < 20


def test_those_with_feedback() -> None:
    assert WITH_FEEDBACK == ["onebit", "topk", "threelc"]


@pytest.mark.parametrize("name", [name for name in CODECS if name not in WITH_FEEDBACK])
def test_no_feedback_leaves_no_residual(name: str) -> None:
    feedback = Feedback(CODECS[name])
    feedback.encode(normal(71))
    assert feedback.residual is None


@pytest.mark.parametrize(
    ("name", "bits"),
    [("float32", 32), ("fp16", 16), ("bf16", 16), ("int8", 8), ("ternary_stochastic", 1.6), ("onebit", 1)],
)
def test_bits_per_value(name: str, bits: float) -> None:
    headers = {"int8": 4, "ternary_stochastic": 4, "onebit": 8}
    message, _ = CODECS[name].encode(normal(4000))
    assert 8 * (len(message) - headers.get(name, 0)) / 4000 == bits


@pytest.mark.parametrize(("fraction", "bits"), [(0.25, 9.0), (0.05, 2.6), (1.0, 33.0)])
def test_the_bits_of_the_largest(fraction: float, bits: float) -> None:
    values = normal(4000)
    message, sent = TopK(fraction).encode(values)
    assert 8 * len(message) / 4000 == bits
    kept = sent != 0
    assert kept.sum() == fraction * 4000
    assert torch.equal(sent[kept], values[kept])
    assert fraction == 1 or values[~kept].abs().max() <= sent[kept].abs().min()


def test_eight_bits_err_by_half_a_level() -> None:
    values = normal(1000)
    _, sent = Int8().encode(values)
    assert (values - sent).abs().max() <= values.abs().max() / 127 / 2 * (1 + 1e-5)
    assert sent.abs().max() == values.abs().max()


def test_one_bit_is_the_mean_of_its_side() -> None:
    values = normal(1000)
    _, sent = OneBit().encode(values)
    for side in (values >= 0, values < 0):
        torch.testing.assert_close(sent[side], values[side].mean().expand(int(side.sum())))


def test_lots_are_right_on_average() -> None:
    values = normal(50)
    codec = TernaryStochastic(seed=0)
    draws = torch.stack([codec.encode(values)[1] for _ in range(4000)])
    largest = values.abs().max()
    assert set((draws / largest).unique().tolist()) == {-1.0, 0.0, 1.0}
    # Five standard errors of a mean of 4,000 draws.
    assert (draws.mean(0) - values).abs().max() < 5 * largest / 2 / math.sqrt(4000)


def test_lots_follow_the_seed_alone() -> None:
    def drawn(seed: int, noise: int) -> Tensor:
        torch.manual_seed(noise)
        return TernaryStochastic(seed).encode(normal(1000))[0]

    assert torch.equal(drawn(0, noise=1), drawn(0, noise=2))
    assert not torch.equal(drawn(0, noise=1), drawn(1, noise=1))


@given(st.lists(st.booleans(), max_size=40))
def test_bits_come_back(bits: list[bool]) -> None:
    packed = pack_bits(torch.tensor(bits, dtype=torch.bool))
    assert packed.tolist() == [
        sum(bit << place for place, bit in enumerate(bits[start : start + 8]))
        for start in range(0, len(bits), 8)
    ]
    assert unpack_bits(packed, len(bits)).tolist() == bits


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("float32", "283 bytes for 71 values: wanted 284"),
        ("int8", "70 eight-bit codes: wanted 71"),
        ("ternary_stochastic", "14 quartic bytes for 71 values: wanted 15"),
        ("onebit", "a bitmap of 8 bytes for 71 values: wanted 9"),
        ("topk", "80 bytes of sparse values: the bitmap requires 81"),
    ],
)
def test_a_message_that_lost_a_byte_is_refused(name: str, wanted: str) -> None:
    message, _ = CODECS[name].encode(normal(71))
    with pytest.raises(GradientError, match=wanted):
        CODECS[name].decode(message[:-1], 71)


def test_powersgd_has_no_codec() -> None:
    with pytest.raises(ConfigError, match=r"gradients=powersgd .* has no codec .*threelc"):
        open_codec(PowerSGDConfig(), 0)
