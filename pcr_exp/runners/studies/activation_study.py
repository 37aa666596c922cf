"""Measure what compressed activations cost and save on one batch; draw it."""

from contextlib import closing
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from pcr_exp.activations.codec import Codec
from pcr_exp.activations.quantise import QuantiseCodec
from pcr_exp.activations.sz import SzCodec
from pcr_exp.analysis.activations.page import draw_run_layers, write_study
from pcr_exp.config.activations import ActivationsConfig
from pcr_exp.config.components import schemas
from pcr_exp.config.runners import ActivationStudyConfig
from pcr_exp.measuring.activation_study import Batch, codec_errors, gradient_errors, memory_table
from pcr_exp.policies.policy import StaticScan
from pcr_exp.runners.studies.shown import show, track_files
from pcr_exp.runs.data import open_data, prepare_data, training_loader
from pcr_exp.training.device import open_device
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.models import open_model
from pcr_exp.training.normalization import model_input, normalization_of


def activation_study(config: ActivationStudyConfig) -> str:
    """Measure, write tables and figures; returns "finished"."""
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
    """Every mode, and error_bounded at every bound and with every codec."""
    modes = {name: ActivationsConfig(name=name) for name in ("none", "lossless", "recompute")}
    for codec in codecs:
        for bound in config.bounds:
            settings = schemas("activations.codec")[codec]
            modes[f"{codec} {bound:g}"] = settings(bounds="fixed", initial_bound=bound)
    return modes


def open_model_and_batch(config: ActivationStudyConfig) -> tuple[nn.Module, Batch]:
    """The model, in training mode, and the first training batch, as training would have them."""
    device = open_device(config.training.device)
    prepare_data(config, progress=True)
    data = open_data(config)
    torch.manual_seed(config.seed)
    model = open_model(config.model, data.num_classes(config.dataset.label)).to(device).train()
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
