"""Storage that fits this machine: a share of what it trains where storage is no limit, measured once.

A bandwidth that is the same on every machine teaches nothing on one that trains so slowly that even whole
images arrive in time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import RunError
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import MIB
from pcr_exp.system.atomic import write_atomic


@dataclass(frozen=True, slots=True)
class Calibration:
    """A bandwidth, and what it was computed from."""

    images_per_s: float
    """What this machine trains in an epoch from storage without a limit."""
    bytes_per_image: float
    """Mean size of a training image at the group that was read, record headers included."""
    share: float
    """The part of `images_per_s` that the bandwidth supplies."""
    bandwidth_mib_per_s: float
    """Two significant digits."""


def bandwidth_for(images_per_s: float, bytes_per_image: float, share: float) -> float:
    """Return the MiB/s, to two significant digits, that supply `share` of `images_per_s`."""
    return float(f"{share * images_per_s * bytes_per_image / MIB:.2g}")


def calibrated(config: TrainConfig, share: float, path: Path) -> Calibration:
    """Return the calibration in `path`; if there is none, train an epoch as configured and write one.

    Args:
        config: The run whose storage is to be chosen. It is trained for one epoch, from unlimited storage.
        share: Of the measured images/s, above 0, that the bandwidth is to supply.
        path: A JSON file. It is what makes a second call choose the same, so that runs resume.

    Raises:
        RunError: the file is damaged, or was made for another share.
        PcrExpError: the epoch could not be trained.
    """
    if path.exists():
        return _read(path, share)
    one_epoch = replace(
        config,
        storage=StorageConfig(name="unlimited"),
        training=replace(config.training, epochs=1),
        runs_root=f"{path.parent}/calibration",
    )
    folder = run_training(one_epoch).folder
    rates = [row["images_per_s"] for row in read_rows(folder / "rows.jsonl") if row["kind"] == "train"]
    # The first updates warm up; a set too small for a second row has only those.
    images_per_s = median(rates[1:] or rates)
    bytes_per_image = read_manifest(folder / "manifest.json").mean_prefix_bytes
    assert bytes_per_image is not None  # known since its records were opened
    bandwidth = bandwidth_for(images_per_s, bytes_per_image, share)
    measured = Calibration(images_per_s, bytes_per_image, share, bandwidth)
    write_atomic(path, [json.dumps(asdict(measured), indent=2).encode() + b"\n"])
    return measured


def _read(path: Path, share: float) -> Calibration:
    try:
        found = Calibration(**json.loads(path.read_bytes()))
        usable = found.bandwidth_mib_per_s > 0
    except (ValueError, TypeError) as error:
        raise RunError(
            f"{path} is damaged: {error}. Delete it, and this machine is measured again."
        ) from error
    if not usable:
        raise RunError(
            f"{path}: bandwidth_mib_per_s={found.bandwidth_mib_per_s}; wanted a rate above 0. Delete "
            "it: this machine is measured again."
        )
    if found.share != share:
        raise RunError(
            f"{path} is of baseline_share={found.share:g}, now it is {share:g}: the runs beside it were made "
            "with the former. Give another out=..., or delete that folder."
        )
    return found
