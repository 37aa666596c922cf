"""The training device, and the clocks of training: five, of which exactly one runs, and a wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, get_args

import torch

from pcr_exp.errors import ConfigError
from pcr_exp.system.provenance import num_cores

ClockName = Literal["train", "wait", "probe", "eval", "other"]

NAMES: tuple[ClockName, ...] = get_args(ClockName)


def _no_device() -> None:
    pass


class StopAfter:
    """A limit in seconds of a clock, counted from the first call of `passed`."""

    def __init__(self, limit_s: float | None) -> None:
        """Set the limit; None never passes."""
        self.limit_s = limit_s
        self._begun_s: float | None = None

    def passed(self, seconds: float) -> bool:
        """Return whether the limit has passed at this reading of the clock."""
        if self._begun_s is None:
            self._begun_s = seconds
        return self.limit_s is not None and seconds - self._begun_s >= self.limit_s


class Clocks:
    """Seconds spent training, waiting for data, on a scan policy's probes, evaluating, and on all else.

    Exactly one clock runs at a time, so `train_s + wait_s + probe_s + eval_s + other_s == wall_s`. The first
    three are the cost of training; the last two (evaluation, files, trackers) are that of observing it.
    `switch` waits for the device before it changes clocks, so work counts on the clock it was launched on,
    not on the one that first reads its result.

    New or paused clocks stand still until the next `switch`.
    """

    def __init__(
        self, synchronize: Callable[[], None] = _no_device, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Make stopped clocks that read zero.

        Args:
            synchronize: Returns when the device has finished all its work.
            now: A monotonic time in seconds; time between two sessions of a run does not count.
        """
        self._synchronize = synchronize
        self._now = now
        self._seconds: dict[ClockName, float] = dict.fromkeys(NAMES, 0.0)
        self._wall_s = 0.0
        self._current: ClockName | None = None
        self._clock_start = 0.0
        self._wall_start = 0.0

    @property
    def current(self) -> ClockName | None:
        """The running clock; None if all stand still."""
        return self._current

    def switch(self, name: ClockName) -> None:
        """Run this clock from now on; the first switch, or one after a pause, also starts the wall clock."""
        if name == self._current:
            return
        self._synchronize()
        now = self._now()
        if self._current is None:
            self._wall_start = now
        else:
            self._seconds[self._current] += now - self._clock_start
        self._current = name
        self._clock_start = now

    def pause(self) -> None:
        """Stop every clock, including the wall clock."""
        if self._current is None:
            return
        self._synchronize()
        now = self._now()
        self._seconds[self._current] += now - self._clock_start
        self._wall_s += now - self._wall_start
        self._current = None

    def read(self) -> dict[str, float]:
        """Return `train_s`, `wait_s`, `probe_s`, `eval_s`, `other_s` and `wall_s`: seconds so far."""
        seconds: dict[ClockName, float] = dict(self._seconds)
        wall_s = self._wall_s
        if self._current is not None:
            now = self._now()
            seconds[self._current] += now - self._clock_start
            wall_s += now - self._wall_start
        return {f"{name}_s": seconds[name] for name in NAMES} | {"wall_s": wall_s}

    def state_dict(self) -> dict[str, float]:
        """Return the readings, for a checkpoint."""
        return self.read()

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from these readings; earlier ones are discarded, and the clocks stand still."""
        self._seconds = {name: state[f"{name}_s"] for name in NAMES}
        self._wall_s = state["wall_s"]
        self._current = None


def open_device(name: str) -> torch.device:
    """Return the device called `name`; `auto` is the GPU if there is one, else the CPU.

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
    """Return how many threads torch should use alongside `num_workers` decoding processes.

    `per_host` training processes share the cores, each with its own workers.

    On a CPU, these are the cores that the workers leave, at least one. OpenMP threads that share a core with
    a worker wait for each other in every operation: on 2 cores, 2 threads and 1 worker were up to 6 times
    slower than 1 thread and 1 worker. On a GPU, None leaves the choice to torch.
    """
    if device.type == "cuda":
        return None
    return max(1, num_cores() // per_host - num_workers)


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Return a function that waits until the device has finished its work."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def amp_dtype(device: torch.device) -> torch.dtype | None:
    """Return the device's half precision: bfloat16 if the GPU has it, else float16; None on a CPU."""
    if device.type != "cuda":
        return None
    # Emulated bfloat16 is slower than float32.
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float16
