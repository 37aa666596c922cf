"""`manifest.json`: what a run is, the machine and code it ran on, and how it ended."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import RunError
from pcr_exp.numerics import NUMERICS
from pcr_exp.records.dataset_facts import DatasetFacts
from pcr_exp.records.index import RecordIndex
from pcr_exp.redaction import redacted_text
from pcr_exp.runs.identity import own_files
from pcr_exp.runs.quality import GroupQuality
from pcr_exp.runs.sessions import SessionFacts, joint_key, new_session, timing_keys
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.columns import Column
from pcr_exp.system.provenance import utc_now
from pcr_exp.training.task import primary_metric_of, target_of

T = TypeVar("T")
STATUSES = ("running", "finished", "failed", "interrupted")
_OF_SESSION = ("command", "git_sha", "git_dirty", "packages", "python", "cpu", "num_cores", "gpu")
_CARRIED_OVER = (
    *("scan_group", "started_at", "quality", "records_key"),
    *("train_fingerprint", "tune_fingerprint", "val_fingerprint"),
)
"""Facts that a session takes over from the one that it continues."""


@dataclass(kw_only=True, slots=True)
class Manifest:
    """Facts about a run and its last session, written when a session starts and completed when it ends."""

    run_id: str
    status: str
    """`running` (also after a kill), `finished`, `failed` or `interrupted`."""
    error: str | None = None
    command: str
    git_sha: str | None
    git_dirty: bool | None
    packages: dict[str, str | None]
    python: str
    cpu: str
    num_cores: int
    gpu: str | None
    seed: int
    dataset: str
    label: str
    model: str
    encoding: str
    scan_group: int
    """The scan group in use; with a scan policy, its latest choice."""
    target: float
    """Value of the primary metric up to which time is measured."""
    headline: str
    """Name of the primary metric; rows hold it as `val_<headline>`."""
    numerics: int
    """Version number from `pcr_exp.numerics`."""
    images_key: str | None
    """Key of the images of all splits, wherever they lie: 16 hex digits, 8 for a mixture. None: unknown."""
    component_code: dict[str, str | None] = field(default_factory=dict)
    """Keys of the user's own code and weights that the run uses; see `identity.own_files`."""
    records_key: str | None = None
    """Key of the records that store these images: 16 hex digits."""
    num_classes: int | None = None
    """Outputs of the network. This and the fields to `cached_share` are known once the records are open."""
    num_train: int | None = None
    num_tune: int | None = None
    num_val: int | None = None
    dataset_facts: DatasetFacts | None = None
    """Facts used to name the images in titles and tables. None for a mixture or an older run."""
    majority_share: float | None = None
    """Share (0 to 1) of the evaluated images in the most frequent class: the score of always predicting it.
    With task=multilabel, the mean share of a class. None: unknown, or the task has none."""
    train_fingerprint: str | None = None
    tune_fingerprint: str | None = None
    val_fingerprint: str | None = None
    mean_prefix_bytes: float | None = None
    """Mean bytes per training image that an epoch at `scan_group` reads, record headers included."""
    quality: list[GroupQuality] = field(default_factory=list)
    """MS-SSIM and bytes of the run's own training images, at every scan group that it may read."""
    cached_share: float | None = None
    """Share (0 to 1) of the training records in the page cache before training. None: unknown."""
    started_at: str
    """Start of the first session, ISO 8601, UTC."""
    resumed_at: list[str] = field(default_factory=list)
    finished_at: str | None = None
    timing_key: str | None = None
    """Key of the sessions that contributed to the run; times of runs with equal keys can be compared."""
    timing_is_mixed: bool = False
    """Whether sessions with different timing keys contributed, so that times mix machines or settings."""
    columns: list[Column] = field(default_factory=list)
    """Columns of the scan policy and of a mixture's sources, in addition to those of every run."""
    sessions: list[SessionFacts] = field(default_factory=list)
    """Every session of the run, in order."""


def new_manifest(
    config: TrainConfig, device: torch.device, previous: Manifest | None, *, name: str, images: str
) -> Manifest:
    """Describe a session that starts now.

    Args:
        config: The whole configuration.
        device: The training device.
        previous: Manifest of the session that this one continues, if any.
        name: Name of the run's directory.
        images: Key of the images of all splits.
    """
    session = new_session(config, device)
    kept = {} if previous is None else {key: getattr(previous, key) for key in _CARRIED_OVER}
    return Manifest(
        run_id=name,
        status="running",
        **{key: getattr(session, key) for key in _OF_SESSION},
        seed=config.seed,
        dataset=config.dataset.name,
        label=config.dataset.label,
        model=config.model.name,
        encoding=config.scan.encoding,
        target=target_of(config),
        headline=primary_metric_of(config.task).name,
        numerics=NUMERICS,
        images_key=images,
        component_code=own_files(config),
        resumed_at=[*previous.resumed_at, session.started_at] if previous else [],
        sessions=[*(previous.sessions if previous else []), session],
        **{"scan_group": config.scan.group, "started_at": session.started_at, **kept},
    )


def begin_at(manifest: Manifest, step: int) -> None:
    """Record how many updates were done when the session begins to train."""
    manifest.sessions[-1].from_step = step
    keys = timing_keys(manifest.sessions)
    manifest.timing_key, manifest.timing_is_mixed = joint_key(keys), len(keys) > 1


def end(manifest: Manifest, status: str, error: str | None = None) -> None:
    """Record how the session ended, and with it the run so far."""
    manifest.status, manifest.finished_at = status, utc_now()
    manifest.error = None if error is None else redacted_text(error)
    manifest.sessions[-1].status, manifest.sessions[-1].finished_at = status, manifest.finished_at


def describe_records(manifest: Manifest, train: RecordIndex, tune: RecordIndex, val: RecordIndex) -> None:
    """Fill in the fields that come from the indexes of the records.

    Raises:
        RunError: the run began with other records.
    """
    indexes = {"train": train, "tune": tune, "val": val}
    for split, index in indexes.items():
        began_with = getattr(manifest, f"{split}_fingerprint")
        if began_with not in (None, index.fingerprint):
            raise RunError(
                f"{manifest.run_id} began with {split} records of fingerprint {began_with}, but it is "
                f"{index.fingerprint} now: the records were made again, in another order or layout. Restore "
                "them, or delete the run directory to start the run again."
            )
        setattr(manifest, f"{split}_fingerprint", index.fingerprint)
    stored = sorted((split, index.fingerprint) for split, index in indexes.items())
    manifest.records_key = hashlib.sha256(json.dumps(stored).encode()).hexdigest()[:16]
    manifest.num_train = train.num_samples
    manifest.num_tune = tune.num_samples
    manifest.num_val = val.num_samples
    describe_group(manifest, train, manifest.scan_group)


def describe_group(manifest: Manifest, train: RecordIndex, group: int) -> None:
    """Fill in the scan group that is read now, and its mean bytes."""
    manifest.scan_group = group
    manifest.mean_prefix_bytes = train.mean_prefix_bytes(group)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    write_atomic(path, [json.dumps(asdict(manifest), indent=2).encode() + b"\n"])


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        RunError: it is missing, is not valid JSON, or has other fields or an unknown status.
    """
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise RunError(f"{path} is not there: wanted a run's manifest.") from error
    except ValueError as error:
        raise RunError(
            f"{path} is damaged: {error}. Delete the run directory to start the run again."
        ) from error
    return manifest_of(values, str(path))


def manifest_of(values: Any, where: str) -> Manifest:
    """Make a manifest from the content of its JSON file.

    Args:
        values: Result of `json.loads`.
        where: Source of the values, for error messages.

    Raises:
        RunError: it has other fields or an unknown status.
    """
    names = {f.name for f in fields(Manifest)}
    # A field with a default may be newer than the manifest.
    needed = {f.name for f in fields(Manifest) if f.default is MISSING and f.default_factory is MISSING}
    found = set(values) if isinstance(values, dict) else set()
    if not needed <= found <= names:
        raise RunError(
            f"{where} is not a manifest of this version: fields missing {sorted(needed - found)}, "
            f"unknown {sorted(found - names)}. Read it with the version that wrote it, or make the run again."
        )
    if values["status"] not in STATUSES:
        raise RunError(f"{where}: status={values['status']!r}; wanted {', '.join(STATUSES)}.")
    values = dict(values)
    values["columns"] = [_column(item, where) for item in values.get("columns", [])]
    values["sessions"] = [_part(SessionFacts, item, where) for item in values.get("sessions", [])]
    values["quality"] = [_part(GroupQuality, item, where) for item in values.get("quality", [])]
    if values.get("dataset_facts") is not None:
        values["dataset_facts"] = _part(DatasetFacts, values["dataset_facts"], where)
    return Manifest(**values)


def _part(kind: type[T], values: dict[str, Any], where: str) -> T:
    try:
        return kind(**values)
    except TypeError as error:
        raise RunError(
            f"{where} is not a manifest of this version: {error}. Read it with the version that wrote it, or "
            "make the run again."
        ) from error


def _column(values: dict[str, Any], where: str) -> Column:
    # JSON has lists where a column has tuples.
    return _part(Column, {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}, where)
