"""A small model that processes train together, and helpers to compare the results."""

from typing import Any

import torch
from torch import Tensor, nn

from pcr_exp.config.components import schemas
from pcr_exp.config.related_methods import GradientsConfig, NetworkConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.gradients.codec import open_codec
from pcr_exp.gradients.tensors import TensorCodec
from pcr_exp.training.distributed.open import open_exchange
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.trainer import Trainer

CPU = torch.device("cpu")
NUM_STEPS = 6
RATE = 0.05
DDP = ("none", "fp16", "bf16", "powersgd", "threelc", "ternary_stochastic", "onebit", "topk", "int8")
SERVER = tuple(name for name in DDP if name != "powersgd")
WAYS = [*((name, "ddp") for name in DDP), *((name, "server") for name in SERVER)]


def settings(name: str, mode: str, **changes: Any) -> GradientsConfig:
    config: GradientsConfig = schemas("gradients")[name](name=name, mode=mode, min_values=16, **changes)
    return config


def small_model(norm: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 20),
        nn.Linear(20, 5),
    )


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    images = torch.randint(256, (4, 8, 8, 3), dtype=torch.uint8, generator=generator)
    return images, torch.randint(5, (4,), generator=generator)


def trainer_of(
    processes: Processes, gradients: GradientsConfig, norm: bool = True, model: nn.Module | None = None
) -> Trainer:
    config = TrainingConfig(epochs=1, batch_size=4, image_size=8, eval_image_size=8, learning_rate=RATE)
    exchange = open_exchange(gradients, NetworkConfig(), processes, seed=0)
    return Trainer(model or small_model(norm), config, device=CPU, seed=0, exchange=exchange)


def steps(trainer: Trainer, processes: Processes, which: range) -> list[float]:
    return [trainer.update(*batch(s, processes.rank), step=s, learning_rate=RATE) for s in which]


def threelc() -> TensorCodec:
    return TensorCodec(lambda _: open_codec(settings("threelc", "ddp"), seed=0), min_values=16)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def global_weights(trainer: Trainer) -> dict[str, Tensor]:
    with trainer.exchange.global_weights():
        return weights(trainer)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
