"""What every way of keeping activations keeps, measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from pcr_exp.activations.count import LiveBytes
from pcr_exp.activations.keep import open_activations
from pcr_exp.config.activations import ActivationsConfig
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.activation_errors import Batch

MEMORY_COLUMNS = [
    *("mode", "batch_size", "device", "kept_bytes", "peak_bytes", "conv_bytes", "packed_bytes", "held_bytes"),
    *("ratio", "reason"),
]


def memory_table(
    model: nn.Module, batch: Batch, modes: Mapping[str, ActivationsConfig], momentum: float
) -> pd.DataFrame:
    """MEMORY_COLUMNS, one row per mode; a mode that does not suit the model has a `reason` and no numbers.

    `kept_bytes`: of storages that wait for backward when the loss is there, each once. `peak_bytes`: at most
    at any time of forward and backward, gradients of the parameters included. On a GPU both are the
    allocator's, on a CPU they are counted storage by storage (`pcr_exp.activations.count.LiveBytes`).
    `conv_bytes`: of inputs of convolutions; `packed_bytes`: of their compressed form; `held_bytes`: of
    `conv_bytes`, what another operation kept all the same.
    """
    rows = [_row(name, model, batch, config, momentum) for name, config in modes.items()]
    return pd.DataFrame(rows, columns=MEMORY_COLUMNS)


def _row(
    name: str, model: nn.Module, batch: Batch, config: ActivationsConfig, momentum: float
) -> dict[str, Any]:
    row = dict.fromkeys(MEMORY_COLUMNS, math.nan) | {
        "mode": name,
        "batch_size": len(batch.labels),
        "device": batch.inputs.device.type,
        "reason": "",
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=momentum)
    try:
        activations = open_activations(config, model, optimizer)
    except ConfigError as error:
        return row | {"reason": str(error)}
    model.zero_grad(set_to_none=True)
    activations.begin(0)
    kept, peak = _measure(model, batch)
    activations.end(0, 1.0)
    activations.remove()
    totals = {
        key: sum(layer[f"{source}_bytes"] for layer in activations.history)
        for key, source in (("conv_bytes", "raw"), ("packed_bytes", "packed"), ("held_bytes", "held"))
        if activations.history
    }
    ratio = totals["conv_bytes"] / totals["packed_bytes"] if totals else math.nan
    return row | {"kept_bytes": kept, "peak_bytes": peak, "ratio": ratio} | totals


def _measure(model: nn.Module, batch: Batch) -> tuple[int, int]:
    device = batch.inputs.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        loss = _loss(model, batch)
        kept = torch.cuda.memory_allocated(device) - before
        loss.backward()
        return kept, torch.cuda.max_memory_allocated(device) - before
    with LiveBytes() as live:
        loss = _loss(model, batch)
        kept = live.num_bytes
        loss.backward()
    return kept, live.peak_bytes


def _loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    torch.manual_seed(0)
    # A copy, as normalising makes one: nobody but the model holds what its first layer is given.
    return F.cross_entropy(model(batch.inputs.clone()).float(), batch.labels)
