"""Where rows, figures and the summary of a run go besides its directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pcr_exp.config.runners import TrackingConfig
from pcr_exp.errors import ConfigError

if TYPE_CHECKING:
    import wandb


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
    return WandbTracker(config, run_id, folder, run_config)


class WandbTracker:
    """Curves `train/*` and `eval/*` over the update step, the configuration, figures as images.

    Evaluations at the scan group of training are `eval_same/*`.

    A resumed run goes on under the same id. Rows between its checkpoint and the kill are then logged twice,
    at the same step and with the same values (clocks and rates excepted).
    """

    def __init__(
        self, config: TrackingConfig, run_id: str, folder: Path, run_config: Mapping[str, Any]
    ) -> None:
        """Start the run; arguments as in `open_tracker`.

        Raises:
            ConfigError: wandb does not start, for want of a login or a network.
        """
        # Imported here: a run without it must not wait for wandb, nor need it.
        import wandb

        self._image = wandb.Image
        try:
            self._run = self._start(config, run_id, folder, run_config)
        except wandb.errors.Error as error:
            raise ConfigError(
                f"tracking.mode={config.mode!r}: wandb did not start ({error}). "
                "Say `wandb login` first, or use tracking=wandb, which needs neither account nor network."
            ) from error
        for kind in ("train", "eval", "eval_same", "policy"):
            self._run.define_metric(f"{kind}/*", step_metric="step")

    @staticmethod
    def _start(config: TrackingConfig, run_id: str, folder: Path, run_config: Mapping[str, Any]) -> wandb.Run:
        import wandb

        return wandb.init(
            project=config.project,
            entity=config.entity,
            id=run_id,
            name=run_id,
            tags=config.tags,
            config={**run_config, "run_path": str(folder)},
            dir=folder,
            mode="online" if config.mode == "online" else "offline",
            # Offline there is nothing to look up: the same id joins both parts at `wandb sync`.
            resume="allow" if config.mode == "online" else None,
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, row: Mapping[str, Any]) -> None:
        """Log each column as `<kind>/<column>`, over `step`."""
        kind = "eval_same" if row.get("eval_group") == "same" else row["kind"]
        values = {f"{kind}/{name}": value for name, value in row.items() if name not in ("kind", "step")}
        self._run.log({"step": row["step"], **values})

    def figure(self, name: str, path: Path) -> None:
        """Log an image file under `figures/<name>`."""
        self._run.log({f"figures/{name}": self._image(str(path))})

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set summary values."""
        self._run.summary.update(dict(values))

    def finish(self, *, failed: bool = False) -> None:
        """Flush everything and end wandb's process."""
        self._run.finish(exit_code=int(failed))
