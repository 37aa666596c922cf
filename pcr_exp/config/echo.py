"""How often training uses what was read once (data echoing)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pcr_exp.config.check import require
from pcr_exp.config.records import NUM_GROUPS

ECHOES = ("none", "example_before", "example_after", "batch")


@dataclass(kw_only=True, slots=True)
class EchoConfig:
    """How often training uses what was read once (Choi et al. 2019, arXiv 1907.05550)."""

    name: str = "none"
    """`example_before`: examples are repeated before augmentation, each repeat is augmented afresh;
    `example_after`: examples are repeated as augmented; `batch`: whole batches are."""
    factor: float = 1.0
    """Uses per fresh item, e. Of 2.25, each is used twice, and a quarter of an epoch's items once more."""
    buffer: int = 1
    """Examples that are shuffled after they were repeated (1: repeats follow each other)."""
    repeat_groups: list[int] = field(default_factory=list)
    """Scan groups of the first repeat, the second and so on; the last of them holds for all that follow. Only
    the bytes that are not in memory yet are read. Empty: repeats show what was read first."""

    def __post_init__(self) -> None:
        require(self.name in ECHOES, "echo.name", self.name, ", ".join(ECHOES))
        require(1 <= self.factor < math.inf, "echo.factor", self.factor, "a number of uses, 1 or more")
        require(self.buffer >= 1, "echo.buffer", self.buffer, "at least 1, which does not shuffle")
        if self.name == "none":
            same = "with echo=none; the same buffer without repeats is echo=example_before echo.factor=1"
            require(self.factor == 1, "echo.factor", self.factor, f"1 {same}")
            require(self.buffer == 1, "echo.buffer", self.buffer, f"1 {same}")
        require(
            self.name != "batch" or self.buffer == 1,
            "echo.buffer",
            self.buffer,
            "1 with echo=batch, which repeats whole batches one after the other; examples are shuffled by "
            "echo=example_before and echo=example_after",
        )
        self._check_repeat_groups()

    def _check_repeat_groups(self) -> None:
        groups = self.repeat_groups
        require(
            not groups or self.name == "example_before",
            "echo.repeat_groups",
            groups,
            f"none with echo={self.name}; only echo=example_before decodes repeats again",
        )
        require(
            groups == sorted(set(groups)) and all(1 <= group <= NUM_GROUPS for group in groups),
            "echo.repeat_groups",
            groups,
            f"scan groups in 1..{NUM_GROUPS}, each higher than the one before",
        )
        require(
            len(groups) <= math.ceil(self.factor) - 1,
            "echo.repeat_groups",
            groups,
            f"at most one group per repeat, and echo.factor={self.factor:g} makes "
            f"{math.ceil(self.factor) - 1}",
        )
