"""Where rows, figures and the summary of a run go besides its directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pcr_exp.config.tracking import TrackingConfig


class Tracker(Protocol):
    """Shows a run elsewhere. The run directory stays the source of every result."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Show a row."""

    def figure(self, name: str, path: Path) -> None:
        """Show a figure: an image file such as a PNG."""

    def summary(self, values: Mapping[str, Any]) -> None:
        """Show what became of the run."""

    def finish(self, *, failed: bool = False) -> None:
        """End; to be called once, whatever happened."""


class NoTracker:
    """Shows nothing, starts nothing."""

    def log(self, row: Mapping[str, Any]) -> None:
        pass

    def figure(self, name: str, path: Path) -> None:
        pass

    def summary(self, values: Mapping[str, Any]) -> None:
        pass

    def finish(self, *, failed: bool = False) -> None:
        pass


def open_tracker(config: TrackingConfig, run_id: str, folder: Path, run_config: Mapping[str, Any]) -> Tracker:
    """Return the tracker that the configuration names.

    Args:
        config: Which one.
        run_id: The run's name, and its identity for the tracker: a resumed run continues it.
        folder: The run directory; the tracker keeps its files there.
        run_config: The whole configuration as plain dicts, and `labels`: storage, scan and network in words.
    """
    if config.name == "none":
        return NoTracker()
    # Imported here: a run without it must not wait for wandb, nor need it.
    from pcr_exp.runs.wandb_tracker import WandbTracker

    return WandbTracker(config, run_id, folder, run_config)
