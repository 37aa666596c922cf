"""How fast 3LC encodes and decodes on one core: `pytest -m slow -s tests/benchmarks/test_gradient_codecs.py`.

Encoding includes error accumulation. Tensors are those of a model, one by one, as training sends them. With
CODEC_RESULTS=<folder> in the environment, codec.csv there gets what was measured.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skimage.data
import torch
import torchvision  # type: ignore[import-untyped]
from benchmark_rows import save_rows
from torch import Tensor, nn

from pcr_exp.gradients.feedback import Feedback
from pcr_exp.gradients.threelc import ThreeLC

pytestmark = pytest.mark.slow

AT_LEAST_MB_PER_S = 200
NUM_REPEATS = 9
NUM_STEPS_BEFORE = 20
"""Residuals grow to a steady state, in which more values are sent than in the first steps."""

Steps = Iterator[list[Tensor]]


@pytest.fixture(autouse=True)
def one_core() -> None:
    torch.set_num_threads(1)


def compressed(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that 3LC compresses: not those of normalisation and biases."""
    return [parameter for parameter in model.parameters() if parameter.ndim > 1]


def training(name: str) -> Steps:
    """Gradients of updates on crops of two photographs, which the model is to tell apart."""
    photos = [skimage.data.astronaut(), skimage.data.coffee()]
    rng = np.random.default_rng(0)
    model = torchvision.models.get_model(name, num_classes=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        labels = rng.integers(0, 2, 8)
        corners = rng.integers(0, 400 - 64, (8, 2))
        crops = [photos[label][y : y + 64, x : x + 64] for label, (y, x) in zip(labels, corners, strict=True)]
        images = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2) / 255 - 0.5
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), torch.from_numpy(labels)).backward()
        yield [p.grad.reshape(-1).clone() for p in compressed(model) if p.grad is not None]
        optimizer.step()


def drawn(sizes: list[int], draw: Callable[[int], Tensor]) -> Steps:
    """Steps of values without any sense."""
    while True:
        yield [draw(size) for size in sizes]


CASES: dict[str, Callable[[], Steps]] = {
    "resnet18, of photographs": lambda: training("resnet18"),
    "shufflenet_v2_x0_5, of photographs": lambda: training("shufflenet_v2_x0_5"),
    "resnet18, normal values": lambda: drawn(
        [p.numel() for p in compressed(torchvision.models.resnet18())], torch.randn
    ),
    "4 Mi normal values": lambda: drawn([2**22], torch.randn),
    "4 Mi ternary values": lambda: drawn([2**22], lambda size: torch.randint(-1, 2, (size,)).float()),
}
"""The last has hardly a zero byte to shorten: the most that there is to write."""


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@pytest.mark.parametrize("case", CASES)
def test_megabytes_of_float32_per_second(case: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    steps = CASES[case]()
    codec = ThreeLC(1.0)
    gradients = next(steps)
    senders = [Feedback(codec) for _ in gradients]

    def encode() -> list[Tensor]:
        return [sender.encode(values)[0] for sender, values in zip(senders, gradients, strict=True)]

    def decode() -> list[Tensor]:
        return [codec.decode(m, len(values)) for m, values in zip(messages, gradients, strict=True)]

    messages = encode()
    for _ in range(NUM_STEPS_BEFORE):
        gradients = next(steps)
        messages = encode()
    megabytes = sum(values.nbytes for values in gradients) / 1e6
    ratio = megabytes * 1e6 / sum(map(len, messages))
    rows = [
        {
            "tensors": case,
            "megabytes": megabytes,
            "ratio": ratio,
            "repeat": repeat,
            "encode_mb_per_s": megabytes / seconds(encode),
            "decode_mb_per_s": megabytes / seconds(decode),
        }
        for repeat in range(NUM_REPEATS)
    ]
    save_rows(rows, Path(os.environ.get("CODEC_RESULTS", tmp_path), "codec.csv"))
    frame = pd.DataFrame(rows)
    assert min(frame["encode_mb_per_s"].median(), frame["decode_mb_per_s"].median()) >= AT_LEAST_MB_PER_S
