"""`manifest.json`: what a run is, on what it ran, and how it ended."""

from __future__ import annotations

import json
import platform
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path

import torch

from pcr_exp.config.runners import TrainConfig
from pcr_exp.errors import RunError
from pcr_exp.records.atomic import write_atomic
from pcr_exp.records.index import RecordIndex
from pcr_exp.runs import provenance
from pcr_exp.runs.identity import run_id
from pcr_exp.training.device import num_cores

STATUSES = ("running", "finished", "failed", "interrupted")


@dataclass(kw_only=True, slots=True)
class Manifest:
    """Written when a run starts, completed when it ends; of a resumed run, the facts of its last session."""

    run_id: str
    status: str
    """`running` (also: killed before it could say otherwise), `finished`, `failed` or `interrupted`."""
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
    """Of a scan policy, the group that it chose last."""
    target_top1: float
    num_classes: int | None = None
    """This and what follows: known once the records are open."""
    num_train: int | None = None
    num_val: int | None = None
    train_fingerprint: str | None = None
    val_fingerprint: str | None = None
    mean_prefix_bytes: float | None = None
    """Mean bytes per training image that an epoch at `scan_group` reads, record headers included."""
    cached_share: float | None = None
    """Share (0 to 1) of the training records that lay in the page cache before training; None: not known."""
    started_at: str
    """ISO 8601, UTC: the first session's."""
    resumed_at: list[str] = field(default_factory=list)
    finished_at: str | None = None


def new_manifest(config: TrainConfig, device: torch.device, previous: Manifest | None) -> Manifest:
    """Describe a session that starts now; `previous` is the manifest of the session that it continues."""
    git_sha, git_dirty = provenance.git_state()
    now = utc_now()
    return Manifest(
        run_id=run_id(config),
        status="running",
        command=provenance.command_line(),
        git_sha=git_sha,
        git_dirty=git_dirty,
        packages=provenance.package_versions(),
        python=platform.python_version(),
        cpu=provenance.cpu_model(),
        num_cores=num_cores(),
        gpu=provenance.gpu_model(device),
        seed=config.seed,
        dataset=config.dataset.name,
        label=config.dataset.label,
        model=config.model.name,
        encoding=config.scan.encoding,
        scan_group=previous.scan_group if previous else config.scan.group,
        target_top1=config.dataset.target_top1,
        train_fingerprint=previous.train_fingerprint if previous else None,
        val_fingerprint=previous.val_fingerprint if previous else None,
        started_at=previous.started_at if previous else now,
        resumed_at=[*previous.resumed_at, now] if previous else [],
    )


def describe_records(manifest: Manifest, train: RecordIndex, val: RecordIndex) -> None:
    """Fill in what the records' indexes say.

    Raises:
        RunError: the run began on other records than these.
    """
    for split, index in (("train", train), ("val", val)):
        began_with = getattr(manifest, f"{split}_fingerprint")
        if began_with not in (None, index.fingerprint):
            raise RunError(
                f"{manifest.run_id} began with {split} records of fingerprint {began_with}, now it is "
                f"{index.fingerprint}: they were made again from other images. Restore them, or delete "
                "the run directory to start the run again."
            )
        setattr(manifest, f"{split}_fingerprint", index.fingerprint)
    manifest.num_classes = len(train.classes[manifest.label])
    manifest.num_train = train.num_samples
    manifest.num_val = val.num_samples
    describe_group(manifest, train, manifest.scan_group)


def describe_group(manifest: Manifest, train: RecordIndex, group: int) -> None:
    """Fill in which scan group is read now."""
    manifest.scan_group = group
    manifest.mean_prefix_bytes = train.mean_prefix_bytes(group)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write it so that the file is never half there."""
    write_atomic(path, [json.dumps(asdict(manifest), indent=2).encode() + b"\n"])


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        RunError: it is missing, no JSON, has other fields, or a status that there is not.
    """
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise RunError(f"{path} is not there: wanted a run's manifest.") from error
    except ValueError as error:
        raise RunError(
            f"{path} is damaged: {error}. Delete the run directory to start the run again."
        ) from error
    names = {f.name for f in fields(Manifest)}
    # What has a default may have come later than the manifest.
    needed = {f.name for f in fields(Manifest) if f.default is MISSING and f.default_factory is MISSING}
    found = set(values) if isinstance(values, dict) else set()
    if not needed <= found <= names:
        raise RunError(
            f"{path} is not a manifest of this version: fields missing {sorted(needed - found)}, "
            f"unknown {sorted(found - names)}. Read it with the version that wrote it, or make the run again."
        )
    if values["status"] not in STATUSES:
        raise RunError(f"{path}: status={values['status']!r}; wanted {', '.join(STATUSES)}.")
    return Manifest(**values)


def utc_now() -> str:
    """Return the time, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
