"""A run owns its directory: who may write there, what lies where, and how the last session ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from omegaconf import OmegaConf

from pcr_exp.config.runners import TrainConfig
from pcr_exp.errors import RunError
from pcr_exp.records.atomic import write_atomic
from pcr_exp.runs.identity import differences, run_id, scientific_part
from pcr_exp.runs.lock import hold
from pcr_exp.runs.manifest import Manifest, read_manifest

_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of a run."""

    path: Path
    dead_holder: str | None = None
    """The process that died holding the directory, if the last one did."""

    @property
    def manifest_path(self) -> Path:
        return self.path / "manifest.json"

    @property
    def config_path(self) -> Path:
        return self.path / "config.yaml"

    @property
    def rows_path(self) -> Path:
        return self.path / "rows.jsonl"

    @property
    def layers_path(self) -> Path:
        return self.path / "activations.csv"

    @property
    def log_path(self) -> Path:
        return self.path / "log.txt"

    @property
    def checkpoint_path(self) -> Path:
        return self.path / "checkpoint.pt"

    def manifest(self) -> Manifest | None:
        """Return the last session's manifest, or None if there was no session. Raises RunError if damaged."""
        return read_manifest(self.manifest_path) if self.manifest_path.exists() else None

    @property
    def status(self) -> str:
        """`new`, `interrupted` (also: killed), `failed` or `finished`. For whoever holds the directory."""
        manifest = self.manifest()
        if manifest is None:
            return "new"
        return "interrupted" if manifest.status == "running" else manifest.status


def run_path(config: TrainConfig) -> Path:
    """Return `<runs_root>/<run_id>`."""
    return Path(config.runs_root) / run_id(config)


@contextmanager
def claim(config: TrainConfig) -> Iterator[RunDirectory]:
    """Hold the run's directory `<runs_root>/<run_id>`, made here if it is new.

    Raises:
        RunError: a live process holds it, it belongs to another configuration, or it is not a run's.
    """
    path = run_path(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(exist_ok=False)
    except FileExistsError:
        _require_run(path)
    with hold(path / _LOCK) as dead_holder:
        directory = RunDirectory(path, dead_holder)
        _check_config(directory, config)
        if directory.status != "finished":
            # What may differ (workers, logging, paths) is as this session has it.
            text = OmegaConf.to_yaml(OmegaConf.create(asdict(config)))
            write_atomic(directory.config_path, [text.encode()])
        yield directory


def _require_run(path: Path) -> None:
    contents = [entry.name for entry in path.iterdir()] if path.is_dir() else [path.name]
    if "config.yaml" not in contents and set(contents) - {_LOCK, "config.yaml.tmp"}:
        raise RunError(
            f"{path} exists and is not a run's directory (no config.yaml; it holds {sorted(contents)[:3]}). "
            "Move it away, or give another runs_root."
        )


def _check_config(directory: RunDirectory, config: TrainConfig) -> None:
    if not directory.config_path.exists():
        return
    found = OmegaConf.to_container(OmegaConf.load(directory.config_path))
    try:
        different = differences(scientific_part(found), scientific_part(asdict(config)))  # type: ignore[arg-type]
    except (KeyError, AttributeError, TypeError):
        different = ["its groups"]
    if different:
        raise RunError(
            f"{directory.config_path} is of another configuration: {', '.join(different)} differ. "
            "It was edited or made by another version: move the run directory away."
        )
