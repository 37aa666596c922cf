"""Finished runs from disk, checked; and the others by name."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from pcr_exp.analysis.core.run_notes import RunNotes, read_notes
from pcr_exp.analysis.core.shared_machine import COMPANY, shared_in_time
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
    shared_machine: str = ""
    """Why its seconds are not its own: words, where it had company; else empty."""
    majority_share: float | None = None
    """Share (0 to 1) of the most frequent class among its validation images; None: not known."""
    quality: list[dict[str, Any]] = field(default_factory=list)
    """What each scan group kept of the images that it trained on, as manifests hold it; empty: not known."""

    @property
    def eval_rows(self) -> list[Row]:
        """At least one; the last is of the finished model."""
        return [row for row in self.rows if row["kind"] == "eval"]


def read_runs(runs_root: str | Path, target_top1: float | None = None) -> list[Run]:
    """All finished runs in the folders of `runs_root`, by run id.

    `target_top1` takes the place of the target in their manifests, which no file is changed for: what a run
    did does not depend on it. What manifests do not say is taken from `notes.json` beside the runs, if it is
    there (`run_notes`); and which runs went on at the same time, from all manifests.

    Raises:
        RunError: `runs_root` is not there; a manifest or the notes are damaged; a row is wrong (names file
            and line); or a run is marked finished without an evaluation.
    """
    directories = list(_directories(Path(runs_root)))
    manifests = [directory.manifest() for directory in directories]
    company = shared_in_time(manifest for manifest in manifests if manifest is not None)
    notes = read_notes(Path(runs_root))
    runs = [_read_run(entry, notes, company) for entry in directories if entry.status == "finished"]
    if target_top1 is None:
        return runs
    return [replace(run, manifest=replace(run.manifest, target=target_top1)) for run in runs]


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


def _read_run(directory: RunDirectory, notes: RunNotes, company: Set[str]) -> Run:
    manifest = directory.manifest()
    assert manifest is not None  # its status was read from it
    if not directory.config_path.exists():
        raise RunError(f"{directory.config_path} is not there: wanted the configuration of a finished run.")
    config: Any = OmegaConf.to_container(OmegaConf.load(directory.config_path))
    own_majority: float | None = getattr(manifest, "majority_share", None)
    own_quality = [_as_dict(entry) for entry in getattr(manifest, "quality", [])]
    run = Run(
        manifest,
        config,
        read_rows(directory.rows_path),
        shared_machine=notes.why_shared(manifest.run_id) or (COMPANY if manifest.run_id in company else ""),
        majority_share=notes.majority_of(manifest) if own_majority is None else own_majority,
        quality=own_quality or notes.quality_of(manifest, config),
    )
    if not run.eval_rows:
        raise RunError(
            f"{directory.rows_path} has no eval row, but the manifest beside it says that the run finished. "
            "Delete the run directory to make the run again."
        )
    return run


def _as_dict(entry: Any) -> dict[str, Any]:
    return asdict(entry) if is_dataclass(entry) and not isinstance(entry, type) else dict(entry)
