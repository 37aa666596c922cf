"""Settings of related methods, for all variants: data echoing, activations and gradients.

The variants of echoing are in `pcr_exp.loading.echo.variants`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from pcr_exp.config.check import RATE, above, at_least, check_fields, one_of, require
from pcr_exp.config.components import component, component_of, names
from pcr_exp.config.scan_scripts import NUM_GROUPS, groups_of_script


def num_echoed(num_items: int, factor: float) -> int:
    """Return the uses of `num_items` items: factor x num_items, rounded, and so equal on all ranks."""
    return round(factor * num_items)


@dataclass(kw_only=True, slots=True)
class EchoConfig:
    """How often training uses data that was read once (Choi et al. 2019, arXiv 1907.05550)."""

    name: str = "none"
    """Name of the variant, as registered."""
    factor: Annotated[float, at_least(1, "a number of uses, 1 or more")] = 1.0
    """Uses per fresh item (e). With 2.25, each is used twice, and a quarter of an epoch's items once more."""
    buffer: Annotated[int, at_least(1, "at least 1 (1: no shuffling)")] = 1
    """Samples that are shuffled together after repetition (1: repeats are consecutive)."""
    repeat_groups: list[int] = field(default_factory=list)
    """Scan groups of the first repeat, the second and so on; the last one applies to all further repeats.
    Only bytes that are not yet in memory are read. Empty: repeats use what was read first."""

    def __post_init__(self) -> None:
        require(self.name in names("echo"), "echo.name", self.name, ", ".join(names("echo")))
        component_of("echo", self)  # refuses a name with the settings of another variant
        check_fields(self, "echo")
        if self.name == "none":
            same = "with echo=none; for a buffer without repeats, use echo=example_before echo.factor=1"
            require(self.factor == 1, "echo.factor", self.factor, f"1 {same}")
            require(self.buffer == 1, "echo.buffer", self.buffer, f"1 {same}")
        decodes = not self.repeat_groups or self.decodes_repeats
        wanted = f"none with echo={self.name}; only echo=example_before decodes repeats again"
        require(decodes, "echo.repeat_groups", self.repeat_groups, wanted)
        self._check_repeat_groups()

    def fit(self, num_groups: int) -> None:
        """Adapt to records with `num_groups` groups; see `groups_of_script`. Raises ConfigError."""
        self.repeat_groups = groups_of_script("echo.repeat_groups", self.repeat_groups, num_groups)
        self._check_repeat_groups()

    @property
    def decodes_repeats(self) -> bool:
        """Whether echoing happens before decoding, so that each repeat is decoded and augmented afresh."""
        return False

    @property
    def repeats_decoded(self) -> bool:
        """Whether echoing happens after decoding, so that repeats are decoded and augmented only once."""
        return False

    def num_samples(self, num_fresh: int) -> int:
        """Return the number of samples from which an epoch with `num_fresh` fresh ones is batched."""
        return num_fresh

    def _check_repeat_groups(self) -> None:
        groups, num_repeats = self.repeat_groups, math.ceil(self.factor) - 1
        rising = groups == sorted(set(groups)) and all(1 <= group <= NUM_GROUPS for group in groups)
        wanted = f"scan groups in 1..{NUM_GROUPS}, each higher than the one before"
        require(rising, "echo.repeat_groups", groups, wanted)
        wanted = f"at most one group per repeat; echo.factor={self.factor:g} allows {num_repeats}"
        require(len(groups) <= num_repeats, "echo.repeat_groups", groups, wanted)


@dataclass(kw_only=True, slots=True)
class ActivationsConfig:
    """How convolution inputs are saved between forward and backward."""

    name: Annotated[str, one_of("none", "lossless", "error_bounded", "recompute", "injected_errors")] = "none"
    """`none`: save everything, as torch does. `lossless`: zeros as bits, the rest unchanged. `error_bounded`:
    to within a bound. `recompute`: only the inputs of blocks, which run again in backward. `injected_errors`:
    everything, but weight gradients get errors as large as adaptive bounds accept."""
    codec: str = "quantise"
    """Codec of error_bounded, as registered: `quantise` (ours, any device) or `sz` (SZ3 on the CPU, extra
    `sz`)."""
    bounds: Annotated[str, one_of("adaptive", "fixed")] = "adaptive"
    """`adaptive`: set per layer by the error model, every `interval` updates. `fixed`: initial_bound."""
    initial_bound: Annotated[float, above(0)] = 1e-4
    """Largest error of an input value before the first adaptation. The paper's value is not known to us."""
    interval: Annotated[int, at_least(1)] = 1000
    """Updates between two inspections of the layers (W)."""
    momentum_fraction: Annotated[float, above(0)] = 0.01
    """Accepted standard deviation of the gradient error, as a share of a weight's mean momentum."""
    error_model: Annotated[str, one_of("exact", "paper")] = "exact"
    """`exact`: no free parameter. `paper`: with the empirical `paper_factor`."""
    paper_factor: Annotated[float, above(0)] = 0.32
    """Coefficient of `error_model=paper`."""

    @property
    def follows_momentum(self) -> bool:
        """Whether the optimiser's momentum determines how large an error may be."""
        adapts = self.name == "error_bounded" and self.bounds == "adaptive"
        return adapts or self.name == "injected_errors"

    def __post_init__(self) -> None:
        check_fields(self, "activations")
        codecs = names("activations.codec")
        require(self.codec in codecs, "activations.codec", self.codec, " or ".join(codecs))
        if self.name == "error_bounded":
            schema = component("activations.codec", self.codec).schema
            wanted = (
                "the codec that has these settings; an option such as activations=error_bounded_sz chooses "
                "both"
            )
            require(schema is type(self), "activations.codec", self.codec, wanted)


@dataclass(kw_only=True, slots=True)
class NetworkConfig:
    """Full-duplex link of each process to all others, equally fast both ways; null means no limit."""

    name: str = "unlimited"
    """Name of the network in figures."""
    bandwidth_mbit_per_s: Annotated[float | None, RATE] = None
    """Bandwidth in 10^6 bits per second, as networks are sold."""
    latency_ms: Annotated[float, at_least(0)] = 0.0
    """Milliseconds from sending a message to its first byte."""

    def __post_init__(self) -> None:
        check_fields(self, "network")


@dataclass(kw_only=True, slots=True)
class GradientsConfig:
    """How gradients are exchanged between processes; a codec may add settings of its own."""

    name: str = "none"
    """Name of the codec, as registered."""
    mode: Annotated[str, one_of("ddp", "server")] = "ddp"
    """`ddp`: every process sends its gradients to all others, and all take the same step. `server`: processes
    push gradients to a parameter server (the first process) and pull model changes from it."""
    min_values: Annotated[int, at_least(0)] = 256
    """Tensors with fewer values are sent as float32, as are all with fewer than two dimensions (norms,
    biases)."""

    def __post_init__(self) -> None:
        known = names("gradients")
        require(self.name in known, "gradients.name", self.name, ", ".join(known))
        component_of("gradients", self)  # refuses a name with the settings of another codec
        check_fields(self, "gradients")
