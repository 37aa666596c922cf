"""Finished runs from disk, checked; and the others by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from pcr_exp.errors import RunError
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.manifest import Manifest
from pcr_exp.runs.rows import Row, read_rows


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run as it lies on disk."""

    manifest: Manifest
    config: dict[str, Any]
    rows: list[Row]

    @property
    def eval_rows(self) -> list[Row]:
        """At least one; the last is of the finished model."""
        return [row for row in self.rows if row["kind"] == "eval"]


def read_runs(runs_root: str | Path, target_top1: float | None = None) -> list[Run]:
    """All finished runs in the folders of `runs_root`, by run id.

    `target_top1` takes the place of the target in their manifests, which no file is changed for: what a run
    did does not depend on it.

    Raises:
        RunError: `runs_root` is not there; a manifest is damaged; a row is wrong (names file and line); or a
            run is marked finished without an evaluation.
    """
    finished = (entry for entry in _directories(Path(runs_root)) if entry.status == "finished")
    runs = [_read_run(directory) for directory in finished]
    if target_top1 is None:
        return runs
    return [replace(run, manifest=replace(run.manifest, target_top1=target_top1)) for run in runs]


def unfinished_runs(runs_root: str | Path) -> pd.DataFrame:
    """The runs that `read_runs` leaves out: run_id, status, error (None unless failed), folder.

    `interrupted` is also what a run that is going on right now looks like from outside.
    """
    rows = []
    for directory in _directories(Path(runs_root)):
        status = directory.status
        if status != "finished":
            manifest = directory.manifest()
            error = manifest.error if manifest else None
            rows.append((directory.path.name, status, error, str(directory.path)))
    return pd.DataFrame(rows, columns=["run_id", "status", "error", "folder"])


def _directories(runs_root: Path) -> Iterator[RunDirectory]:
    if not runs_root.is_dir():
        raise RunError(
            f"{runs_root} is not there: wanted a folder of runs. `python -m experiments.train` makes one."
        )
    for folder in sorted(runs_root.iterdir()):
        directory = RunDirectory(folder)
        if directory.config_path.exists() or directory.manifest_path.exists():
            yield directory


def _read_run(directory: RunDirectory) -> Run:
    manifest = directory.manifest()
    assert manifest is not None  # its status was read from it
    if not directory.config_path.exists():
        raise RunError(f"{directory.config_path} is not there: wanted the configuration of a finished run.")
    config = OmegaConf.to_container(OmegaConf.load(directory.config_path))
    run = Run(manifest, config, read_rows(directory.rows_path))  # type: ignore[arg-type]
    if not run.eval_rows:
        raise RunError(
            f"{directory.rows_path} has no eval row, but the manifest beside it says that the run finished. "
            "Delete the run directory to make the run again."
        )
    return run
