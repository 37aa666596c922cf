"""A run's directory: its lock, its files, and how the last session ended."""

from __future__ import annotations

import csv
import io
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from pcr_exp.config.commands import OF_THE_COMMAND, TrainConfig
from pcr_exp.errors import RunError
from pcr_exp.redaction import RedactingFormatter, redacted
from pcr_exp.runs.identity import differences, identity, own_files, run_id
from pcr_exp.runs.manifest import Manifest, read_manifest
from pcr_exp.runs.predictions import PREDICTIONS_FILE
from pcr_exp.runs.sessions import timing_settings
from pcr_exp.system.atomic import explain_os_error, make_folder, write_atomic
from pcr_exp.system.keys import key_of
from pcr_exp.system.lock import HOLDER_SUFFIX, hold

log = logging.getLogger(__name__)
_LOCK = "lock"
_BEFORE_CONFIG = {_LOCK, f"{_LOCK}{HOLDER_SUFFIX}", f"{_LOCK}{HOLDER_SUFFIX}.tmp", "config.yaml.tmp"}
"""Files that a directory may hold if its creator was killed before writing the configuration."""
_SOON_S = 5.0
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml reads a configuration in 2 ms where OmegaConf takes 28 ms; a sweep has hundreds."""


class RunInUseError(RunError):
    """A live process holds the run's directory."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of a run."""

    path: Path
    dead_holder: str | None = None
    """The last process that held the directory, if it died holding it."""

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
    def predictions_path(self) -> Path:
        return self.path / PREDICTIONS_FILE

    @property
    def log_path(self) -> Path:
        return self.path / "log.txt"

    @property
    def checkpoint_path(self) -> Path:
        return self.path / "checkpoint.pt"

    def config(self) -> dict[str, Any]:
        """Return the run's configuration, as plain values.

        Raises:
            OSError: it does not exist.
            RunError: it is damaged.
        """
        text = self.config_path.read_bytes()
        try:
            config = yaml.load(text, _YAML)
        except yaml.YAMLError as error:
            raise RunError(
                f"{self.config_path} is damaged: {error}. Restore it, or delete the run."
            ) from error
        if not isinstance(config, dict):
            raise RunError(
                f"{self.config_path} is damaged: it holds no configuration. Restore it, or delete the run."
            )
        return config

    def manifest(self) -> Manifest | None:
        """Return the last session's manifest, or None if there was no session. Raises RunError if damaged."""
        return read_manifest(self.manifest_path) if self.manifest_path.exists() else None

    @property
    def status(self) -> str:
        """`new`, `interrupted` (also: killed), `failed` or `finished`, if no other process runs it now."""
        manifest = self.manifest()
        if manifest is None:
            return "new"
        return "interrupted" if manifest.status == "running" else manifest.status


def planned_directory(config: TrainConfig, images: str) -> RunDirectory:
    """Return the directory that `claim` would hold now if no other process is using it."""
    settings = timing_settings(asdict(config))
    shared = RunDirectory(Path(config.runs_root) / run_id(config, images))
    is_taken = shared.status == "finished" and _other_settings(shared, settings)
    return RunDirectory(_own_path(shared.path, settings)) if is_taken else shared


def _own_path(shared: Path, settings: Mapping[str, Any]) -> Path:
    return shared.with_name(f"{shared.name}-t{key_of(settings)}")


@contextmanager
def claim(config: TrainConfig, images: str) -> Iterator[RunDirectory]:
    """Lock the run's directory `<runs_root>/<run_id>`, creating it if needed.

    Runs with the same id learn the same, at whatever speed. An interrupted run is therefore continued, and a
    finished one counts as finished, on any machine. Settings that affect only speed (workers, threads,
    device) still matter for timings. If the run is finished or in progress with other such settings, this one
    gets a directory of its own: `<run_id>-t<key of the settings>`.

    Args:
        config: The whole configuration.
        images: Key of the images of all splits.

    Raises:
        RunError: a live process holds it, it belongs to another configuration, or it is not a run directory.
        StorageError: it cannot be created.
    """
    settings = timing_settings(asdict(config))
    shared = Path(config.runs_root) / run_id(config, images)
    make_folder(shared.parent)
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(_hold(shared))
            taken = directory.status == "finished"
        except RunInUseError:
            directory, taken = RunDirectory(shared), True
            _wait_for_config(directory)
            if not _other_settings(directory, settings):
                raise
        _check_config(directory, config, images)
        if taken and (others := _other_settings(directory, settings)):
            log.info(
                "%s has other settings that affect speed (%s), so this becomes a separate run",
                shared,
                ", ".join(others),
            )
            stack.close()
            directory = stack.enter_context(_hold(_own_path(shared, settings)))
            _check_config(directory, config, images)
        if directory.status != "finished":
            # Settings that may differ (workers, logging, paths) are saved as in this session.
            settings = {key: value for key, value in asdict(config).items() if key not in OF_THE_COMMAND}
            text = OmegaConf.to_yaml(OmegaConf.create(redacted(settings)))
            write_atomic(directory.config_path, [text.encode()])
        yield directory


@contextmanager
def _hold(path: Path) -> Iterator[RunDirectory]:
    try:
        path.mkdir(exist_ok=False)
    except FileExistsError:
        _require_run(path)
    except OSError as error:
        raise explain_os_error(error, path) from error
    with hold(path / _LOCK, lambda holder: _in_use(path, holder)) as dead_holder:
        yield RunDirectory(path, dead_holder)


def _in_use(path: Path, holder: str) -> RunInUseError:
    return RunInUseError(
        f"{path} is in use by {holder}. Wait for it to end or stop it; to run the same configuration twice, "
        "give another runs_root."
    )


def _wait_for_config(directory: RunDirectory) -> None:
    # If jobs of a sweep start together, the first may not have written its configuration yet.
    until_s = time.monotonic() + _SOON_S
    while not directory.config_path.exists() and time.monotonic() < until_s:
        time.sleep(0.05)


def _other_settings(directory: RunDirectory, settings: Mapping[str, Any]) -> list[str]:
    """Return, in words, the speed settings that differ from the last session's; none if it has just begun."""
    try:
        found = timing_settings(directory.config())
    except (OSError, KeyError, AttributeError, TypeError):  # it has just begun, or `_check_config` rejects it
        return []
    return [f"{key}={found.get(key)}, now {new}" for key, new in settings.items() if found.get(key) != new]


def _require_run(path: Path) -> None:
    contents = [entry.name for entry in path.iterdir()] if path.is_dir() else [path.name]
    if "config.yaml" not in contents and set(contents) - _BEFORE_CONFIG:
        raise RunError(
            f"{path} exists and is not a run's directory (no config.yaml; it holds {sorted(contents)[:3]}). "
            "Move it away, or give another runs_root."
        )


def _check_config(directory: RunDirectory, config: TrainConfig, images: str) -> None:
    if not directory.config_path.exists():
        return
    found = directory.config()
    try:
        files = own_files(config)  # the directory's name depends on them
        different = differences(identity(found, images, files), identity(asdict(config), images, files))
    except (KeyError, AttributeError, TypeError):
        different = ["its groups"]
    if different:
        raise RunError(
            f"{directory.config_path} belongs to another configuration: {', '.join(different)} differ. It "
            "was edited or made by another version: move the run directory away."
        )


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Append `pcr_exp` messages from level INFO to a file, without secrets; other handlers get them too."""
    logger = logging.getLogger("pcr_exp")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()


def write_layers(path: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows so far as CSV; a run that compresses nothing gets no file.

    Raises:
        StorageError: the disk is full or cannot be written.
    """
    if not history:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(history[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_atomic(path, [text.getvalue().encode()])
