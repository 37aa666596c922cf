"""Which scan group each record is read at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pcr_exp.config.scan import ScanConfig


class ScanPolicy(Protocol):
    """Asked at each record, in the order of reading, by one thread at a time; told what training observed."""

    def group(self, epoch: int, record: int) -> int:
        """Scan group (from 1) to read `record` at in `epoch`."""
        ...

    def observe(self, row: Mapping[str, Any]) -> None:
        """Take note of a row that training yields."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to decide as this one would have."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        ...


class StaticScan:
    """One scan group for the whole run."""

    def __init__(self, group: int) -> None:
        self._group = group

    def group(self, epoch: int, record: int) -> int:  # noqa: ARG002
        """The one group."""
        return self._group

    def observe(self, row: Mapping[str, Any]) -> None:
        """Nothing that is observed changes it."""

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is no state to continue from."""


def open_policy(config: ScanConfig) -> ScanPolicy:
    """The policy that a configuration describes."""
    return StaticScan(config.group)
