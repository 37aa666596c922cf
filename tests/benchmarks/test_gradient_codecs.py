"""How fast 3LC encodes and decodes on one core: `pytest -m slow -s tests/benchmarks/test_gradient_codecs.py`.

Encoding includes error accumulation. Tensors are those of a model, one by one, as training sends them.
"""

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch
import torchvision  # type: ignore[import-untyped]
from torch import Tensor

from pcr_exp.gradients.feedback import Feedback
from pcr_exp.gradients.threelc import ThreeLC

pytestmark = pytest.mark.slow

AT_LEAST_MB_PER_S = 200
NUM_REPEATS = 9
NUM_STEPS_BEFORE = 20
"""Residuals grow to a steady state, in which more values are sent than in the first steps."""


@pytest.fixture(autouse=True)
def one_core() -> None:
    torch.set_num_threads(1)


def layers_of(model: str) -> list[int]:
    """Sizes of the tensors that 3LC compresses: not those of normalisation and biases."""
    return [p.numel() for p in torchvision.models.get_model(model).parameters() if p.ndim > 1]


CASES = {
    "resnet18, normal values": (layers_of("resnet18"), torch.randn),
    "shufflenet_v2_x0_5, normal values": (layers_of("shufflenet_v2_x0_5"), torch.randn),
    "4 Mi normal values": ([2**22], torch.randn),
    "4 Mi ternary values, hardly a zero byte": ([2**22], lambda size: torch.randint(-1, 2, (size,)).float()),
}


def seconds(work: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(NUM_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


@pytest.mark.parametrize("case", CASES)
def test_megabytes_of_float32_per_second(case: str) -> None:
    sizes, draw = CASES[case]
    torch.manual_seed(0)
    gradients = [draw(size) for size in sizes]
    codec = ThreeLC(1.0)
    senders = [Feedback(codec) for _ in sizes]

    def encode() -> list[Tensor]:
        return [sender.encode(values)[0] for sender, values in zip(senders, gradients, strict=True)]

    for _ in range(NUM_STEPS_BEFORE):
        # New values each step; the sizes that are timed stay.
        messages = [sender.encode(draw(size))[0] for sender, size in zip(senders, sizes, strict=True)]

    def decode() -> list[Tensor]:
        return [codec.decode(message, size) for message, size in zip(messages, sizes, strict=True)]

    megabytes = 4 * sum(sizes) / 1e6
    ratio = megabytes * 1e6 / sum(len(message) for message in messages)
    rates = {}
    for name, work in (("encode", encode), ("decode", decode)):
        times = seconds(work)
        rates[name] = megabytes / median(times)
        spread = f"{megabytes / max(times):.0f} to {megabytes / min(times):.0f}"
        print(f"{case}: {name} {rates[name]:.0f} MB/s ({spread}, n = {NUM_REPEATS}), {ratio:.1f} x smaller")
    assert min(rates.values()) >= AT_LEAST_MB_PER_S
