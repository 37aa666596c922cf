"""How the processes of a run tell each other their gradients."""

from __future__ import annotations

from dataclasses import dataclass

from pcr_exp.config.check import require

CODECS = (
    *("none", "fp16", "bf16", "powersgd", "threelc"),
    *("ternary_stochastic", "onebit", "topk", "int8"),
)
LARGEST_SPARSITY = 2 - 2**-23
"""The float32 number before 2."""


@dataclass(kw_only=True, slots=True)
class GradientsConfig:
    """What travels between processes, and which way."""

    name: str = "none"
    """The codec."""
    mode: str = "ddp"
    """`ddp`: every process sends its gradients to all, all take the same step. `server`: processes push
    gradients to a parameter server (the first of them), which pulls them along by sending model changes."""
    sparsity: float = 1.0
    """threelc: s in [1, 2); more sends fewer values per step."""
    zero_run: bool = True
    """threelc: shorten runs of zero bytes."""
    fraction: float = 0.25
    """topk: share of a tensor's values that is sent."""
    rank: int = 2
    """powersgd: columns of the two factors that stand for a matrix."""
    min_values: int = 256
    """Smaller tensors are sent as float32, as are all with fewer than two dimensions (norms, biases)."""

    def __post_init__(self) -> None:
        require(
            self.name in CODECS, "gradients.name", self.name, ", ".join(CODECS[:-1]) + f" or {CODECS[-1]}"
        )
        require(self.mode in ("ddp", "server"), "gradients.mode", self.mode, "ddp or server")
        in_range = 1 <= self.sparsity <= LARGEST_SPARSITY
        require(in_range, "gradients.sparsity", self.sparsity, "a number in [1, 2)")
        require(0 < self.fraction <= 1, "gradients.fraction", self.fraction, "a share in (0, 1]")
        require(self.rank >= 1, "gradients.rank", self.rank, "at least 1")
        require(self.min_values >= 0, "gradients.min_values", self.min_values, "0 or more")
        no_server = self.name == "powersgd" and self.mode == "server"
        require(not no_server, "gradients.mode", self.mode, "ddp: PowerSGD needs sums over all processes")
