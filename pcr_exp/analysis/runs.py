"""Finished runs, read from disk and checked, and a list of unfinished ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.primary_metric import scored
from pcr_exp.errors import RunError
from pcr_exp.records.dataset_facts import describe_dataset
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.manifest import Manifest
from pcr_exp.runs.packed import ROWS_FILE, RUNS_FILE, PackedRun, is_packed, read_packed
from pcr_exp.runs.predictions import Predictions, predictions_below
from pcr_exp.runs.rows import Row, read_rows
from pcr_exp.system.keys import key_of
from pcr_exp.training.columns import with_declared

CONCURRENT_RUNS = "other runs went on beside it on the same machine"
Session = tuple[datetime, datetime, str, str]
"""Start, end, machine, run id."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run, as stored on disk."""

    manifest: Manifest
    config: dict[str, Any]
    rows: list[Row]
    shared_machine: str = ""
    """Why its seconds are unreliable: the reason if other runs were concurrent, else empty."""
    exclusive_only: bool = True
    """Whether its seconds may be shown only if it had the machine to itself."""
    predictions: Predictions | None = field(default=None, repr=False, compare=False)
    """Its predictions of every image; None if it saved none."""

    @property
    def dataset(self) -> str:
        """Name of the dataset in tables and titles, from measured facts if the run has them."""
        return describe_dataset(self.manifest.dataset, self.manifest.dataset_facts)

    @property
    def settings(self) -> dict[str, Any]:
        """Its configuration; `code` is a key of the user's own code, present if its components use any."""
        code = getattr(self.manifest, "component_code", {})
        return {**self.config, "code": key_of(code)} if code else self.config

    @property
    def eval_rows(self) -> list[Row]:
        """Full-fidelity evaluations, the last of the finished model; at least one unless `is_timed`."""
        return evaluations_at("full", self.rows)


def evaluations_at(eval_group: str, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the evaluations at one of `training.eval_groups`."""
    return [row for row in rows if row["kind"] == "eval" and row["eval_group"] == eval_group]


def read_runs(
    runs_root: str | Path, target: float | None = None, *, exclusive_only: bool = True
) -> list[Run]:
    """Return all finished runs in the folders of `runs_root` and in a packed set there, by run id.

    Runs that only measured seconds are left out (`read_timed_runs`).

    `target` replaces the target of their manifests without changing a file, because training does not depend
    on it. All manifests together determine which runs were concurrent. Without `exclusive_only`, seconds may
    be shown even if other processes used the CPU.

    Raises:
        RunError: `runs_root` does not exist; a manifest is damaged; a row is wrong (the message names file
            and line); a finished run has no evaluation; a run is both in a folder and in the set; or saved
            predictions are damaged.
    """
    found = (run for run in _finished_runs(Path(runs_root)) if not is_timed(run.config))
    runs = [replace(run, exclusive_only=exclusive_only) for run in found]
    if target is None:
        return runs
    return [replace(run, manifest=replace(run.manifest, target=target)) for run in runs]


def _finished_runs(root: Path) -> list[Run]:
    directories = list(_directories(root))
    packed = read_packed(root) if is_packed(root) else []
    for run in packed:
        _require_evaluated(run, f"{root / ROWS_FILE}, {run.manifest.run_id},")
    manifests = [*(directory.manifest() for directory in directories), *(run.manifest for run in packed)]
    concurrent = shared_in_time(manifest for manifest in manifests if manifest is not None)
    finished = [_read(directory) for directory in directories if directory.status == "finished"]
    if twice := _ids(finished) & _ids(packed):
        raise RunError(f"{root} has {min(twice)} twice, in {RUNS_FILE} and as a folder. Move one away.")
    if packed:
        finished = sorted([*packed, *finished], key=lambda run: run.manifest.run_id)
    predictions = predictions_below(root)
    return [
        replace(_described(run, concurrent), predictions=predictions.get(run.manifest.run_id))
        for run in finished
    ]


def read_timed_runs(runs_root: str | Path) -> list[Run]:
    """Return all finished runs with `training.stop_after_s`: their rows have seconds, but no result.

    `read_runs` leaves them out. Raises RunError as it does.
    """
    return [run for run in _finished_runs(Path(runs_root)) if is_timed(run.config)]


def is_timed(config: Mapping[str, Any]) -> bool:
    """Return whether a run only measures seconds: it has `training.stop_after_s`."""
    return config["training"]["stop_after_s"] is not None


def unfinished_runs(runs_root: str | Path) -> pd.DataFrame:
    """Return the unfinished runs: run_id, status, error (None unless failed), folder.

    A run that is still training also has the status `interrupted`.
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


def _ids(runs: Iterable[PackedRun]) -> set[str]:
    return {run.manifest.run_id for run in runs}


def _read(directory: RunDirectory) -> PackedRun:
    manifest = directory.manifest()
    assert manifest is not None  # its status was read from it
    if not directory.config_path.exists():
        raise RunError(f"{directory.config_path} is not there: wanted the configuration of a finished run.")
    rows = read_rows(directory.rows_path, with_declared(manifest.columns))
    run = PackedRun(manifest, directory.config(), rows)
    _require_evaluated(run, str(directory.rows_path))
    return run


def _require_evaluated(run: PackedRun, where: str) -> None:
    if not is_timed(run.config) and not any(row["kind"] == "eval" for row in run.rows):
        raise RunError(
            f"{where} has no eval row, but the run's manifest says that it finished. Delete the run to make "
            "it again."
        )


def _described(run: PackedRun, concurrent: Set[str]) -> Run:
    rows = [scored(row, run.manifest.headline) for row in run.rows]
    return Run(run.manifest, run.config, rows, CONCURRENT_RUNS if run.manifest.run_id in concurrent else "")


def shared_in_time(manifests: Iterable[Manifest]) -> set[str]:
    """Return the ids of runs that were concurrent with another run on the same machine.

    Sessions with equal host count as the same machine. Sessions that were killed before they recorded their
    end are ignored.
    """
    sessions = sorted(session for manifest in manifests for session in _sessions(manifest))
    found = set()
    for place, (_, end, machine, run_id) in enumerate(sessions):
        for other_start, _, other_machine, other_id in sessions[place + 1 :]:
            if other_start >= end:
                break
            if other_machine == machine and other_id != run_id:
                found |= {run_id, other_id}
    return found


def _sessions(manifest: Manifest) -> list[Session]:
    return [
        (
            datetime.fromisoformat(session.started_at),
            datetime.fromisoformat(session.finished_at),
            session.host,
            manifest.run_id,
        )
        for session in manifest.sessions
        if session.finished_at is not None
    ]
