"""Speed of 3LC's encoding and decoding on one core: `python -m experiments.threelc.codec_speed`.

Encoding includes error accumulation. A model's tensors are encoded one by one, as training sends them. The
rows go to outputs/codec_speed/codec.csv.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator

import numpy as np
import skimage.data
import torch
import torchvision  # type: ignore[import-untyped]
from torch import Tensor, nn

from experiments.results.study import Row, Study, seconds
from pcr_exp.gradients.tensors import Feedback
from pcr_exp.gradients.threelc import ThreeLC

NUM_STEPS_BEFORE = 20
"""Untimed steps: residuals grow to a steady state, in which more values are sent than in the first steps."""

Steps = Iterator[list[Tensor]]


def compressed(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that 3LC compresses: all but biases and those of normalisation."""
    return [parameter for parameter in model.parameters() if parameter.ndim > 1]


def training(name: str) -> Steps:
    """Yield the gradients of updates that train a model to distinguish crops of two images."""
    images = [skimage.data.astronaut(), skimage.data.coffee()]
    rng = np.random.default_rng(0)
    model = torchvision.models.get_model(name, num_classes=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        labels = rng.integers(0, 2, 8)
        corners = rng.integers(0, 400 - 64, (8, 2))
        crops = [images[label][y : y + 64, x : x + 64] for label, (y, x) in zip(labels, corners, strict=True)]
        inputs = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2) / 255 - 0.5
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), torch.from_numpy(labels)).backward()
        yield [p.grad.reshape(-1).clone() for p in compressed(model) if p.grad is not None]
        optimizer.step()


def drawn(sizes: list[int], draw: Callable[[int], Tensor]) -> Steps:
    """Yield steps of random values."""
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
"""Cases by their names in committed rows. The last has hardly any zero bytes to shorten, so its messages are
the largest."""


def measure_codec(case: str, repeats: int) -> Iterator[Row]:
    """Yield rows of one case: megabytes of float32 per second, encoding and decoding a step's tensors."""
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
    for repeat in range(repeats):
        yield {
            "tensors": case,
            "megabytes": megabytes,
            "ratio": ratio,
            "repeat": repeat,
            "encode_mb_per_s": megabytes / seconds(encode),
            "decode_mb_per_s": megabytes / seconds(decode),
        }


def rows(given: Namespace) -> Iterator[Row]:
    """Measure every case; the repeats of each are consecutive."""
    torch.set_num_threads(1)
    for case in CASES:
        yield from measure_codec(case, given.repeats)


main = Study(__doc__, "outputs/codec_speed/codec.csv", rows, repeats=9, images=False)

if __name__ == "__main__":
    main()
