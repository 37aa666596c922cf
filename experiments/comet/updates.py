"""Cost of updates on a device (bytes, seconds, the largest batch), and checks of clocks and NCCL.

On a GPU, peak bytes come from the allocator (`torch.cuda.max_memory_allocated`). On a CPU, they are None.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pcr_exp.cli.dry_run import open_trainer, random_batch
from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import RunError
from pcr_exp.system import MIB
from pcr_exp.training.clocks import Clocks, synchronizer

_UPDATES_BEFORE = 3
"""Untimed updates, in which the allocator fills its cache and the fastest convolutions are selected."""
_FINENESS = 16
"""The largest batch is found to one part in this number."""


def measure_updates(config: TrainConfig, device: torch.device, num_updates: int) -> dict[str, Any]:
    """Run updates on one batch, and measure them.

    Returns:
        `batch_size`; `n` timed updates; `update_s`, the mean by the clock that runs use; `images_per_s`;
        `clock_error`: that clock over the device's own (CUDA events, on a CPU a second clock), minus 1;
        `peak_bytes` of one update, weights included, None on a CPU; `kept_bytes`, saved for backward at most;
        `loss` of the last update.
    """
    trainer = open_trainer(config, device)
    images, labels = random_batch(config.training.batch_size, config.training.image_size)
    rate = config.training.learning_rate
    for step in range(_UPDATES_BEFORE):
        trainer.update(images, labels, step=step, learning_rate=rate)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    clocks, stopped = Clocks(synchronizer(device)), _stopwatch(device)
    clocks.switch("train")
    for step in range(_UPDATES_BEFORE, _UPDATES_BEFORE + num_updates):
        loss = trainer.update(images, labels, step=step, learning_rate=rate)
    passed_s = stopped()
    clocks.pause()
    update_s = clocks.read()["train_s"] / num_updates
    return {
        "batch_size": len(labels),
        "n": num_updates,
        "update_s": update_s,
        "images_per_s": len(labels) / update_s,
        "clock_error": update_s * num_updates / passed_s - 1,
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "kept_bytes": trainer.saved_bytes.columns()["kept_bytes_max"],
        "loss": loss,
    }


def _stopwatch(device: torch.device) -> Callable[[], float]:
    """Start a stopwatch on the device's own clock; the returned function returns the seconds since then."""
    if device.type != "cuda":
        begun_s = time.perf_counter()
        return lambda: time.perf_counter() - begun_s
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begun.record()

    def stop() -> float:
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended)) / 1e3

    return stop


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, to one part in _FINENESS; 0 if not even 1 fits.

    Args:
        fits: Returns whether a number fits. Every number below one that fits is assumed to fit.
        most: Upper limit, at least 1.
    """
    good, bad = 0, None
    trial = 1
    while bad is None and good < most:
        if fits(trial):
            good, trial = trial, min(2 * trial, most)
        else:
            bad = trial
    while bad is not None and bad - good > max(1, good // _FINENESS):
        trial = (good + bad) // 2
        good, bad = (trial, bad) if fits(trial) else (good, trial)
    return good


def largest_batch(config: TrainConfig, device: torch.device, most: int) -> int:
    """Return how many images an update can have before the device's memory is full (`largest`)."""

    def fits(batch_size: int) -> bool:
        try:
            _update_twice(config, device, batch_size)
        except torch.OutOfMemoryError:
            enough = False
        else:
            enough = True
        gc.collect()  # after the error, which holds the model, is gone
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return enough

    return largest(fits, most)


def _update_twice(config: TrainConfig, device: torch.device, batch_size: int) -> None:
    trainer = open_trainer(config, device)
    images, labels = random_batch(batch_size, config.training.image_size)
    for step in range(2):  # the second also holds the optimizer's state
        trainer.update(images, labels, step=step, learning_rate=config.training.learning_rate)


def measure_all_reduce(device: torch.device, num_bytes: int, n: int) -> dict[str, Any]:
    """Sum a tensor over a process group of this process alone: NCCL on a GPU, gloo on a CPU.

    Returns:
        `backend`, `num_bytes`, `n`, `all_reduce_s` (mean) and `mib_per_s`.

    Raises:
        RunError: the sum over one process differs from its input, or a process group exists already.
    """
    if dist.is_initialized():
        raise RunError("there is a process group already: measure before processes are joined, or without.")
    backend = "nccl" if device.type == "cuda" else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        try:
            values = torch.arange(max(1, num_bytes // 4), dtype=torch.float32, device=device)
            wanted = values.clone()
            dist.all_reduce(values)
            if not torch.equal(values, wanted):
                raise RunError(f"{backend}: the sum over one process is not what it gave. Report it.")
            wait = synchronizer(device)
            wait()
            begun_s = time.perf_counter()
            for _ in range(n):
                dist.all_reduce(values)
            wait()
            passed_s = (time.perf_counter() - begun_s) / n
        finally:
            dist.destroy_process_group()
    mib_per_s = values.nbytes / MIB / passed_s
    return {
        "backend": backend,
        "num_bytes": values.nbytes,
        "n": n,
        "all_reduce_s": passed_s,
        "mib_per_s": mib_per_s,
    }


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """Return the settings of a `measure_updates` row: model, input, precision, how activations are saved."""
    return {
        "model": config.model.name,
        "image_size_px": config.training.image_size,
        "amp": config.training.amp,
        "activations": asdict(config.activations)["name"],
    }
