"""Which bytes of each record are read."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from pcr_exp.config.check import require
from pcr_exp.config.records import NUM_GROUPS


@dataclass(kw_only=True, slots=True)
class ScanConfig:
    """Which bytes of each record are read."""

    name: str = MISSING
    encoding: str = "pcr"
    """`pcr`, or `baseline`: the original JPEG bytes in the same container."""
    group: int = NUM_GROUPS

    def __post_init__(self) -> None:
        require(self.encoding in ("pcr", "baseline"), "scan.encoding", self.encoding, "pcr or baseline")
        highest = NUM_GROUPS if self.encoding == "pcr" else 1
        require(1 <= self.group <= highest, "scan.group", self.group, f"a scan group, 1..{highest}")
