"""Building of the configured exchange between processes."""

from __future__ import annotations

import numpy as np
import torch

from pcr_exp.config.related_methods import GradientsConfig, NetworkConfig
from pcr_exp.errors import ConfigError
from pcr_exp.gradients.codec import PowerSGDConfig, open_codec
from pcr_exp.gradients.tensors import TensorCodec
from pcr_exp.training.distributed.ddp import AllGather, AllReduce, Averaging, DdpExchange, PowerSGD
from pcr_exp.training.distributed.exchange import Exchange, Link, Wire
from pcr_exp.training.distributed.parameter_server import ServerExchange
from pcr_exp.training.distributed.processes import Processes

_SUMMED = {"none": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Codecs whose messages can be summed: DDP reduces them in a ring instead of sending each to all."""


def check_exchange(
    gradients: GradientsConfig, network: NetworkConfig, world_size: int, num_slots: int
) -> None:
    """Refuse settings that need several processes, or one process per micro-batch of the global batch.

    Raises:
        ConfigError: there is one process, and a setting would have no effect; or a codec would encode the sum
            of several batches' gradients, from which it leaves out other values than from a single batch's.
    """
    if world_size > 1:
        if gradients != GradientsConfig() and num_slots != world_size:
            raise ConfigError(
                f"gradients={gradients.name} (mode {gradients.mode}) with {num_slots // world_size} batches "
                "per process in a global batch: what a codec leaves out depends on the number of senders. "
                f"Start {num_slots} processes, leave out training.global_batch_size, or use gradients=none."
            )
        return
    start = "start several: torchrun --nproc-per-node 2 -m experiments.train ..."
    if gradients != GradientsConfig():
        raise ConfigError(
            f"gradients={gradients.name} (mode {gradients.mode}): it compresses what processes send each "
            f"other, but there is only one process. Use gradients=none, or {start}"
        )
    if network != NetworkConfig():
        raise ConfigError(
            f"network={network.name}: it slows down what processes send each other, but there is only one "
            f"process. Use network=unlimited, or {start}"
        )


def open_exchange(
    gradients: GradientsConfig, network: NetworkConfig, processes: Processes, seed: int
) -> Exchange:
    """Build the configured exchange.

    Args:
        seed: The run's seed; every (seed, sender, tensor) has its own stream of random numbers.
    """
    if processes.world_size == 1:
        return Exchange()
    wire = Wire(Link(network))

    def codec(sender: int) -> TensorCodec:
        return TensorCodec(
            lambda name: open_codec(gradients, seed_of_draws(seed, sender, name)), gradients.min_values
        )

    if gradients.mode == "server":
        return ServerExchange(processes, wire, push=codec(processes.rank), pull=codec(processes.world_size))
    averaging: Averaging
    if gradients.name in _SUMMED:
        averaging = AllReduce(wire, _SUMMED[gradients.name])
    elif isinstance(gradients, PowerSGDConfig):
        averaging = PowerSGD(wire, gradients.rank, gradients.min_values)
    else:
        averaging = AllGather(wire, codec(processes.rank))
    return DdpExchange(processes, wire, averaging)


def seed_of_draws(seed: int, sender: int, name: str) -> int:
    """Return the seed of a tensor's random numbers, independent of the order of sending: DDP changes it."""
    return int(np.random.SeedSequence((seed, sender, *name.encode())).generate_state(1)[0])
