"""Trackers: they show a run's rows, figures, tables and summary outside its directory."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcr_exp.config.commands import TrackingConfig
from pcr_exp.errors import ConfigError
from pcr_exp.redaction import redacted
from pcr_exp.system.provenance import SWEEP_VARIABLE

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

STEP_METRICS = {
    "train": "step",
    "policy": "step",
    "eval": "time_s",
    "eval_same": "time_s",
    "quality": "quality/group",
}
"""The x-axis of each kind of row. Evaluations are plotted over seconds, so that W&B's own page shows
time to accuracy, for groups of runs as well."""
TIME_COLUMNS = ("train_s", "wait_s", "probe_s")
"""Columns that sum to `time_s`; time spent in evaluation does not count."""
START_TIMEOUT_S, FINISH_TIMEOUT_S = 20.0, 30.0
"""Maximum wait for W&B in seconds; data not uploaded by then stays in the run directory."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


class Tracker:
    """Base class that shows a run nowhere. The run directory stays the source of every result."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Show a row of a run, or one of kind `quality` with a `group`."""

    def figure(self, name: str, path: Path) -> None:
        """Show a figure from an image file, such as a PNG."""

    def table(self, name: str, path: Path) -> None:
        """Show a table from a CSV file."""

    def artifact(self, name: str, files: Iterable[Path]) -> None:
        """Store files together, unchanged."""

    def summary(self, values: Mapping[str, Any]) -> None:
        """Show summary values of the run."""

    def finish(self, *, failed: bool = False) -> None:
        """End tracking; call this once, whatever happened."""


def open_tracker(config: TrackingConfig, run_id: str, folder: Path, run_config: Mapping[str, Any]) -> Tracker:
    """Return the tracker that the configuration names.

    Args:
        config: Settings of the tracker.
        run_id: The run's name and its id in the tracker; a resumed run continues under it.
        folder: The run directory; the tracker stores its files there.
        run_config: The whole configuration as plain dicts, and `labels`: storage, scan and network in words.
            Its secrets are not passed to the tracker.
    """
    if config.name == "none":
        return Tracker()
    return WandbTracker(config, run_id, folder, redacted(run_config))


class WandbTracker(Tracker):
    """W&B tracker of a run's curves, configuration, figures as images, tables, and files as artifacts.

    Rows appear as `train/*`, `eval/*`, `eval_same/*` (evaluations at the scan group of training), `policy/*`
    and `quality/*`, over the x-axes in STEP_METRICS. The runs of a sweep form one group, in which runs that
    differ only in seed share a job type. Outside a sweep, runs that differ only in seed form a group.

    A resumed run continues under the same id. Rows between its checkpoint and the interruption are then
    logged twice, at the same step and with the same values (clocks and rates excepted).

    Problems with W&B neither end nor hold up a run under way. Without a connection tracking starts offline;
    after a failure nothing more is logged.
    """

    def __init__(
        self, config: TrackingConfig, run_id: str, folder: Path, run_config: Mapping[str, Any]
    ) -> None:
        """Start the run; arguments as in `open_tracker`.

        Raises:
            ConfigError: wandb does not start, such as for lack of a login.
        """
        # Imported here: runs without W&B must neither need wandb nor wait for its import.
        import wandb

        self._wandb = wandb
        self._failed = False
        try:
            self._run = self._start(config, config.mode, run_id, folder, run_config)
        except (wandb.errors.CommError, TimeoutError) as error:
            log.warning(
                "W&B cannot be reached (%s): this run is logged offline; upload it later with `wandb sync`",
                error,
            )
            wandb.teardown()  # its process still holds the run's id
            self._run = self._start(config, "offline", run_id, folder, run_config)
        except wandb.errors.Error as error:
            remedy = "Use tracking=none to go on without it."
            if config.mode == "online":
                remedy = (
                    "Run `wandb login` first, or use tracking=wandb, which needs neither account nor network."
                )
            raise ConfigError(
                f"tracking.mode={config.mode!r}: wandb did not start ({error}). {remedy}"
            ) from error
        for kind, step_metric in STEP_METRICS.items():
            self._run.define_metric(f"{kind}/*", step_metric=step_metric)

    def _start(
        self, config: TrackingConfig, mode: str, run_id: str, folder: Path, run_config: Mapping[str, Any]
    ) -> wandb.Run:
        online = mode == "online"
        return self._wandb.init(
            project=config.project,
            entity=config.entity,
            id=_id_of(run_id),
            name=run_id,
            group=sweep_name() or group_of(run_id),
            job_type=group_of(run_id),
            tags=config.tags,
            config={**run_config, "run_path": str(folder)},
            dir=folder,
            mode="online" if online else "offline",
            # Offline there is nothing to look up; `wandb sync` joins both parts by their id.
            resume="allow" if online else None,
            settings=self._wandb.Settings(
                console="off", silent=True, init_timeout=START_TIMEOUT_S, finish_timeout=FINISH_TIMEOUT_S
            ),
        )

    def _try(self, tell: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            tell()
        except Exception as error:  # whatever it is, the run goes on without W&B
            self._failed = True
            log.warning(
                "W&B failed (%s: %s): it receives no more data of this run", type(error).__name__, error
            )

    def log(self, row: Mapping[str, Any]) -> None:
        """Log each column as `<kind>/<column>`, with `step` and `time_s`."""
        eval_group = row.get("eval_group", "full")
        kind = row["kind"] if eval_group == "full" else f"{row['kind']}_{eval_group}"
        values = {f"{kind}/{name}": value for name, value in row.items() if name not in ("kind", "step")}
        if "step" in row:
            values["step"] = row["step"]
        if all(name in row for name in TIME_COLUMNS):
            values["time_s"] = sum(row[name] for name in TIME_COLUMNS)
        self._try(lambda: self._run.log(values))

    def figure(self, name: str, path: Path) -> None:
        """Log an image file under `figures/<name>`."""
        self._try(lambda: self._run.log({f"figures/{name}": self._wandb.Image(str(path))}))

    def table(self, name: str, path: Path) -> None:
        """Log a CSV file under `tables/<name>`."""
        from pandas import read_csv  # not needed by a run that shows no table

        self._try(lambda: self._run.log({f"tables/{name}": self._wandb.Table(dataframe=read_csv(path))}))

    def artifact(self, name: str, files: Iterable[Path]) -> None:
        """Log files as one artifact of type `results`."""

        def keep() -> None:
            artifact = self._wandb.Artifact(_NOT_IN_NAMES.sub("_", name), type="results")
            for path in files:
                artifact.add_file(str(path))
            self._run.log_artifact(artifact)

        self._try(keep)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set summary values."""
        self._try(lambda: self._run.summary.update(dict(values)))

    def finish(self, *, failed: bool = False) -> None:
        """Flush everything and end wandb's process."""
        self._failed = False  # end it even after a failure
        self._try(lambda: self._run.finish(exit_code=int(failed)))


def _id_of(run_id: str) -> str:
    # `wandb agent` waits for the run with the id that it has assigned.
    return os.environ.get("WANDB_RUN_ID", run_id) if "WANDB_SWEEP_ID" in os.environ else run_id


def sweep_name() -> str | None:
    """Return the name of the sweep whose job this process runs; None outside a sweep."""
    folder = os.environ.get(SWEEP_VARIABLE)
    return None if folder is None else Path(folder).name


def group_of(run_id: str) -> str:
    """Return a run's id without seed and key. Runs of all seeds share it, and W&B averages over them."""
    return re.sub(r"-s\d+-[0-9a-f]{8}(?=(-t[0-9a-f]{8})?$)", "", run_id)
