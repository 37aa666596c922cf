"""How often training uses what was read once (data echoing): what all variants share.

The variants themselves are `pcr_exp.loading.echo.variants`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pcr_exp.config.check import require
from pcr_exp.config.components import component_of, names
from pcr_exp.config.scan_scripts import NUM_GROUPS, groups_of_script


def num_echoed(num_items: int, factor: float) -> int:
    """Uses of `num_items` items: factor x num_items, rounded; a function of counts, so equal on all ranks."""
    return round(factor * num_items)


@dataclass(kw_only=True, slots=True)
class EchoConfig:
    """How often training uses what was read once (Choi et al. 2019, arXiv 1907.05550)."""

    name: str = "none"
    """The variant, as it is registered."""
    factor: float = 1.0
    """Uses per fresh item, e. Of 2.25, each is used twice, and a quarter of an epoch's items once more."""
    buffer: int = 1
    """Samples that are shuffled after they were repeated (1: repeats follow each other)."""
    repeat_groups: list[int] = field(default_factory=list)
    """Scan groups of the first repeat, the second and so on; the last of them holds for all that follow. Only
    the bytes that are not in memory yet are read. Empty: repeats show what was read first."""

    def __post_init__(self) -> None:
        require(self.name in names("echo"), "echo.name", self.name, ", ".join(names("echo")))
        component_of("echo", self)  # refuses a name with the settings of another variant
        require(1 <= self.factor < math.inf, "echo.factor", self.factor, "a number of uses, 1 or more")
        require(self.buffer >= 1, "echo.buffer", self.buffer, "at least 1, which does not shuffle")
        if self.name == "none":
            same = "with echo=none; the same buffer without repeats is echo=example_before echo.factor=1"
            require(self.factor == 1, "echo.factor", self.factor, f"1 {same}")
            require(self.buffer == 1, "echo.buffer", self.buffer, f"1 {same}")
        require(
            not self.repeat_groups or self.decodes_repeats,
            "echo.repeat_groups",
            self.repeat_groups,
            f"none with echo={self.name}; only echo=example_before decodes repeats again",
        )
        self._check_repeat_groups()

    def fit(self, num_groups: int) -> None:
        """Name the groups of records that have so many; see `groups_of_script`. Raises ConfigError."""
        self.repeat_groups = groups_of_script("echo.repeat_groups", self.repeat_groups, num_groups)
        self._check_repeat_groups()

    @property
    def decodes_repeats(self) -> bool:
        """Whether the echo stands in front of decoding: each repeat is decoded and augmented afresh."""
        return False

    @property
    def repeats_decoded(self) -> bool:
        """Whether the echo stands behind decoding, and repeats what was decoded and augmented once."""
        return False

    def num_samples(self, num_fresh: int) -> int:
        """Samples that an epoch of `num_fresh` is cut into batches from."""
        return num_fresh

    def _check_repeat_groups(self) -> None:
        groups = self.repeat_groups
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
