"""Which device trains, and how to wait for it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pcr_exp.errors import ConfigError
from pcr_exp.system.provenance import num_cores


def open_device(name: str) -> torch.device:
    """Return the device called `name`; `auto` is the GPU where there is one, else the CPU.

    Raises:
        ConfigError: torch does not know the name, or this machine lacks the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"training.device={name!r}: wanted auto, cpu, cuda or cuda:<n>.") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"training.device={name!r}: wanted auto, cpu, cuda or cuda:<n>.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"training.device={name!r}: torch sees {torch.cuda.device_count()} CUDA devices here. "
            "Use training.device=cpu, or a torch build that fits the driver."
        )
    return device


def cpu_threads(device: torch.device, num_workers: int, per_host: int = 1) -> int | None:
    """Return how many threads torch should compute with beside `num_workers` decoding processes.

    `per_host` training processes share the cores, each with workers of its own.

    On a CPU: the cores that the workers leave, at least one. OpenMP threads that share a core with a worker
    wait for each other in every operation: on 2 cores, 2 threads and 1 worker were up to 6 times slower
    than 1 thread and 1 worker. On a GPU torch's own choice stands (None).
    """
    if device.type == "cuda":
        return None
    return max(1, num_cores() // per_host - num_workers)


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Return a function that returns when the device has done its work."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def amp_dtype(device: torch.device) -> torch.dtype | None:
    """Return the half precision for this device: bfloat16 where the GPU has it, else float16; CPU: none."""
    if device.type != "cuda":
        return None
    # Emulated bfloat16 is slower than float32.
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float16
