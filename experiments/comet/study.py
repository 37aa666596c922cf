"""Compressed activations on one batch: the errors of gradients, and the memory held until backward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.comet.page import draw_run_layers, write_study
from experiments.comet.settings import ActivationStudyConfig
from pcr_exp.activations.codec import Codec
from pcr_exp.activations.hooks import ConvInputs, LayerTally, Pack, convolutions
from pcr_exp.activations.keep import PAPER_FACTOR, exact_sensitivity, open_activations, paper_sensitivity
from pcr_exp.activations.kept import LiveBytes
from pcr_exp.activations.packed import Packed, pack
from pcr_exp.activations.quantise import QuantiseCodec
from pcr_exp.activations.sz import SzCodec
from pcr_exp.cli.dry_run import Planned
from pcr_exp.cli.terminal import show, track_files
from pcr_exp.config.components import schemas
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.errors import ConfigError
from pcr_exp.policies.policy import StaticScan
from pcr_exp.runs.data import open_data, prepare_data, training_loader
from pcr_exp.training.clocks import open_device
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.inputs import model_input, normalization_of
from pcr_exp.training.models import open_model

NUM_BINS = 40

CODEC_COLUMNS = ["codec", "bound", "low", "high", "share", "std", "num_values"]

SIGMA_COLUMNS = [
    *("codec", "bound", "batch_size", "layer", "num_weights", "nonzero_share"),
    *("measured_sigma", "exact_sigma", "paper_sigma", "ratio"),
]

NORMAL_COLUMNS = [
    *("codec", "bound", "batch_size", "low", "high", "share"),
    *("kurtosis", "within_one", "num_weights"),
]

_MIN_WEIGHTS = 32
"""Fewer weights give too poor an estimate of their standard deviation."""

_REACH = 4.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Input of one forward and backward pass."""

    inputs: Tensor
    """float32 [N, 3, H, W]."""
    labels: Tensor
    """int64 [N]."""

    def first(self, num_images: int) -> Batch:
        """Return the first `num_images` images."""
        return Batch(self.inputs[:num_images], self.labels[:num_images])


def codec_errors(model: nn.Module, batch: Batch, codecs: Mapping[str, Codec], bound: float) -> pd.DataFrame:
    """Return CODEC_COLUMNS: per codec, a histogram of the errors of all layers' inputs in bins of bound / 20.

    Errors are in units of the bound. Zeros, which decode exactly, are left out.
    """
    rows: list[dict[str, Any]] = []
    for name, codec in codecs.items():
        errors: list[Tensor] = []

        def watched(_: str, values: Tensor, codec: Codec = codec, errors: list[Tensor] = errors) -> Packed:
            packed = pack(values, codec, bound)
            errors.append(((packed.unpack() - values)[values != 0] / bound).flatten())
            return packed

        _compressed_pass(model, batch, watched)
        every = torch.cat(errors)
        rows += [
            {"codec": name, "bound": bound, "std": float(every.std()), "num_values": len(every), **cell}
            for cell in _histogram(every, 1.0)
        ]
    return pd.DataFrame(rows, columns=CODEC_COLUMNS)


def gradient_errors(
    model: nn.Module,
    batch: Batch,
    name: str,
    codec: Codec,
    bounds: Sequence[float],
    batch_sizes: Sequence[int],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compare weight gradients from decoded inputs with those from exact inputs.

    Args:
        model: The model, in training mode.
        batch: At least as many images as the largest of `batch_sizes`.
        name: Name of the codec in the tables.
        codec: The codec.
        bounds: Bounds to try.
        batch_sizes: Batch sizes to try.

    Returns:
        SIGMA_COLUMNS: per layer, the standard deviation of the gradient error, and both models' predictions.
        NORMAL_COLUMNS: a histogram of errors, each scaled by its own standard deviation. Output channels
            differ in their gradients, input channels in their zeros, and taps of a kernel in how often
            padding silences them. Without the scaling, the mixture of normal distributions is not normal.
    """
    sigmas: list[dict[str, Any]] = []
    normal: list[dict[str, Any]] = []
    for batch_size in batch_sizes:
        part = batch.first(batch_size)
        _backward(model, part)
        exact = _weight_gradients(model)
        for bound in bounds:
            run = {"codec": name, "bound": bound, "batch_size": len(part.labels)}
            tallies = _compressed_pass(model, part, partial(_pack, codec, bound))
            errors = {layer: lossy - exact[layer] for layer, lossy in _weight_gradients(model).items()}
            sigmas += [run | _sigma_row(layer, errors[layer], tallies[layer], bound) for layer in errors]
            normal += [run | cell for cell in _normality(list(errors.values()))]
    return pd.DataFrame(sigmas, columns=SIGMA_COLUMNS), pd.DataFrame(normal, columns=NORMAL_COLUMNS)


def _sigma_row(layer: str, error: Tensor, tally: LayerTally, bound: float) -> dict[str, Any]:
    share = tally.nonzero_share
    paper = paper_sensitivity(tally.mean_abs_gradient(1.0), tally.batch_size, share, PAPER_FACTOR)
    return {
        "layer": layer,
        "num_weights": error.numel(),
        "nonzero_share": share,
        "measured_sigma": float(error.square().mean().sqrt()),
        "exact_sigma": bound * exact_sensitivity(tally.gradient_norm(1.0), share),
        "paper_sigma": bound * paper,
        "ratio": tally.raw_bytes / tally.packed_bytes if tally.packed_bytes else math.nan,
    }


def _normality(errors: Sequence[Tensor]) -> Iterator[dict[str, Any]]:
    # Flatten a convolution's [K, C, h, w] to K rows; those of depthwise convolutions are too short.
    tables = [error.flatten(1) for error in errors]
    wide = [table for table in tables if min(table.shape) >= _MIN_WEIGHTS]
    if not wide:
        return
    scaled = torch.cat([_in_own_deviations(_in_own_deviations(table).T).flatten() for table in wide])
    if not len(scaled):
        return
    facts = {
        "kurtosis": float(scaled.double().pow(4).mean()),
        "within_one": float((scaled.abs() < 1).double().mean()),
        "num_weights": len(scaled),
    }
    for cell in _histogram(scaled, _REACH):
        yield facts | cell


def _in_own_deviations(rows: Tensor) -> Tensor:
    # Drop rows without errors: of a channel that is never active, or of an input that was saved exactly.
    scale = rows.square().mean(dim=1, keepdim=True).sqrt()
    alive = (scale > 0).flatten()
    return rows[alive] / scale[alive]


def _compressed_pass(model: nn.Module, batch: Batch, packed: Pack) -> dict[str, LayerTally]:
    inputs = ConvInputs(model, packed)
    try:
        inputs.begin(watch_gradients=True)
        _backward(model, batch)
    finally:
        inputs.remove()
    return inputs.tallies


def _pack(codec: Codec, bound: float, layer: str, values: Tensor) -> Packed:  # noqa: ARG001 - one bound for all
    return pack(values, codec, bound)


def _weight_gradients(model: nn.Module) -> dict[str, Tensor]:
    weights = {layer: conv.weight for layer, conv in convolutions(model).items()}
    return {layer: weight.grad for layer, weight in weights.items() if weight.grad is not None}


def _backward(model: nn.Module, batch: Batch) -> None:
    model.zero_grad(set_to_none=True)
    _loss(model, batch).backward()


def _histogram(values: Tensor, reach: float) -> list[dict[str, float]]:
    counts = torch.histc(values.float(), NUM_BINS, -reach, reach)
    width = 2 * reach / NUM_BINS
    return [
        {"low": -reach + i * width, "high": -reach + (i + 1) * width, "share": count / len(values)}
        for i, count in enumerate(counts.tolist())
    ]


MEMORY_COLUMNS = [
    *("mode", "batch_size", "device", "kept_bytes", "peak_bytes", "conv_bytes", "packed_bytes", "held_bytes"),
    *("ratio", "reason"),
]


def memory_table(
    model: nn.Module, batch: Batch, modes: Mapping[str, ActivationsConfig], momentum: float
) -> pd.DataFrame:
    """Return MEMORY_COLUMNS, one row per mode; a mode that the model does not support has only a `reason`.

    `kept_bytes` is the size of the storages saved for backward once the loss is computed, each counted once.
    `peak_bytes` is the maximum during forward and backward, parameter gradients included. On a GPU, both come
    from the allocator; on a CPU, storages are counted (`pcr_exp.activations.kept.LiveBytes`). `conv_bytes` is
    the size of convolution inputs, and `packed_bytes` that of their compressed form. `held_bytes` is the part
    of `conv_bytes` that another operation saved anyway.
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


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    torch.manual_seed(0)  # same dropout in every pass
    # Copy, as normalisation does, so that only the model holds the input of its first layer.
    return F.cross_entropy(model(batch.inputs.clone()).float(), batch.labels)


def activation_study(config: ActivationStudyConfig) -> str:
    """Measure, and write tables and figures; return "finished"."""
    if config.training.num_threads is not None:
        torch.set_num_threads(config.training.num_threads)
    model, batch = open_model_and_batch(config)
    codecs: dict[str, Codec] = {"quantise": QuantiseCodec()}
    if find_spec("pysz") is not None:
        codecs["sz"] = SzCodec()
    middle = sorted(config.bounds)[len(config.bounds) // 2]
    sigmas, normal = gradient_errors(
        model, batch, "quantise", codecs["quantise"], config.bounds, config.batch_sizes
    )
    files = write_study(
        Path(config.out),
        codec_errors(model, batch, codecs, middle),
        sigmas,
        normal,
        memory_table(model, batch, memory_modes(config, codecs), config.training.momentum),
        title=f"{config.model.name}, {config.training.image_size} px",
        bound=middle,
        dataset=config.dataset.name,
    )
    if config.run is not None:
        files += draw_run_layers(Path(config.run), Path(config.out))
    out = Path(config.out)
    track_files(config.tracking, f"activation_study-{out.name}", out, asdict(config), files)
    show(files)
    return "finished"


def memory_modes(config: ActivationStudyConfig, codecs: dict[str, Codec]) -> dict[str, ActivationsConfig]:
    """Return every mode; error_bounded with every codec at every bound."""
    modes = {name: ActivationsConfig(name=name) for name in ("none", "lossless", "recompute")}
    for codec in codecs:
        for bound in config.bounds:
            settings = schemas("activations.codec")[codec]
            modes[f"{codec} {bound:g}"] = settings(bounds="fixed", initial_bound=bound)
    return modes


def open_model_and_batch(config: ActivationStudyConfig) -> tuple[nn.Module, Batch]:
    """Return the model in training mode and the first training batch, as training would have them."""
    device = open_device(config.training.device)
    prepare_data(config, progress=True)
    data = open_data(config)
    torch.manual_seed(config.seed)
    model = open_model(config.model, len(data.train.index.classes[config.dataset.label])).to(device).train()
    with closing(training_loader(config, data, StaticScan(config.scan.group), Processes())) as loader:
        batch = next(iter(loader.batches(0, 0, 1)))
        inputs = model_input(
            batch.images,
            device,
            channels_last=config.training.channels_last,
            normalization=normalization_of(config.model),
        )
        labels = batch.labels.to(device)
    if config.training.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model, Batch(inputs, labels)


def plan(config: ActivationStudyConfig) -> Planned:
    """Return the plan of a dry run: one batch."""
    sizes = len(config.bounds) * len(config.batch_sizes)
    return Planned(
        [f"one batch of {config.training.batch_size}, {sizes} bounds and sizes, into {config.out}"]
    )
