"""The whole pipeline on the embedded photographs: `make demo`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console

from pcr_exp.analysis.quality import is_measured
from pcr_exp.analysis.report import Page, write_report
from pcr_exp.cli.dry_run import NOT_KNOWN, Planned
from pcr_exp.cli.figures import show
from pcr_exp.cli.quality import quality
from pcr_exp.cli.terminal import track_files
from pcr_exp.cli.train import draw
from pcr_exp.config.commands import DemoConfig, TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.measuring import QualityConfig
from pcr_exp.errors import RunError
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import MIB
from pcr_exp.system.atomic import write_atomic

CONSOLE = Console()


def demo(config: DemoConfig, pages: Sequence[Page] = ()) -> str:
    """Prepare, measure, train and draw, including `pages`. Return "finished"."""
    grid = [
        train_config(config, f"dataset.label={label}", f"scan={scan}")
        for label in config.labels
        for scan in config.scans
    ]
    measure(config, grid[0])
    storage = calibrate(config)
    CONSOLE.print(describe(storage), soft_wrap=True, highlight=False)
    limit = storage.bandwidth_mib_per_s
    grid = [
        replace(run, storage=replace(run.storage, bandwidth_mib_per_s=limit), tracking=config.tracking)
        for run in grid
    ]
    for number, run in enumerate(grid, start=1):
        CONSOLE.rule(f"run {number} of {len(grid)}: label {run.dataset.label}, scan {run.scan.name}")
        run_training(run, draw=draw)
    CONSOLE.rule("result")
    # Other programs, such as a browser, may run: their share of the CPU does not hide a twofold speed-up.
    runs, quality, figures = (f"{config.out}/{name}" for name in ("runs", "quality", "figures"))
    report = write_report(runs, quality, figures, pages=pages, exclusive_only=False)
    show(report)
    track_files(config.tracking, "demo", Path(config.out), asdict(config), [*report.tables, *report.figures])
    CONSOLE.print(describe(storage), soft_wrap=True, highlight=False)
    return "finished"


def train_config(config: DemoConfig, *overrides: str) -> TrainConfig:
    """Compose one run of the grid, as `experiments.train` would."""
    return compose("train", TrainConfig, *config.overrides, f"runs_root={config.out}/runs", *overrides)


def calibrate(config: DemoConfig) -> Calibration:
    """Return the bandwidth at which baseline trains at `baseline_share` of this machine's measured speed."""
    CONSOLE.rule("how fast this machine trains")
    run = train_config(config, f"dataset.label={config.labels[0]}", "scan=baseline")
    # Stored with the results, so that a second call continues with the same storage.
    return calibrated(run, config.baseline_share, Path(config.out) / "storage.json")


def describe(storage: Calibration) -> str:
    """Describe the storage of all runs, and the reason for it."""
    return (
        f"storage: {storage.bandwidth_mib_per_s:g} MiB/s, {storage.share:.0%} of the rate at which this "
        f"machine can train ({storage.images_per_s:.0f} baseline images/s of "
        f"{storage.bytes_per_image / 1e3:.1f} kB)"
    )


def measure(config: DemoConfig, run: TrainConfig) -> None:
    """Make the records and measure MS-SSIM per scan group, unless already done."""
    CONSOLE.rule("photographs, records, quality per scan group")
    out = Path(config.out) / "quality"
    if is_measured(out):
        CONSOLE.print(f"measured before: {out}")
        return
    quality(
        QualityConfig(
            dataset=run.dataset,
            records=run.records,
            max_images=config.quality_images,
            tracking=config.tracking,
            out=str(out),
        )
    )


def plan(config: DemoConfig) -> Planned:
    """Plan the grid of trainings."""
    num_runs = len(config.labels) * len(config.scans)
    return Planned([f"{num_runs} trainings on the embedded photographs, into {config.out}", NOT_KNOWN])


@dataclass(frozen=True, slots=True)
class Calibration:
    """A bandwidth, and the measurements that it was computed from."""

    images_per_s: float
    """Training speed in an epoch on this machine, from unlimited storage."""
    bytes_per_image: float
    """Mean size of a training image at the group that was read, including record headers."""
    share: float
    """Share of `images_per_s` that the bandwidth supplies."""
    bandwidth_mib_per_s: float
    """Rounded to two significant digits."""


def bandwidth_for(images_per_s: float, bytes_per_image: float, share: float) -> float:
    """Return the MiB/s, to two significant digits, that supply `share` of `images_per_s`."""
    return float(f"{share * images_per_s * bytes_per_image / MIB:.2g}")


def calibrated(config: TrainConfig, share: float, path: Path) -> Calibration:
    """Return the calibration in `path`; if there is none, train an epoch as configured and write one.

    Args:
        config: The run whose storage is to be chosen. It is trained for one epoch, from unlimited storage.
        share: Share of the measured images/s, above 0, that the bandwidth supplies.
        path: A JSON file, from which a second call takes the same bandwidth, so that runs resume.

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
    # The first row includes warm-up; it counts only if a small dataset yields no other.
    images_per_s = median(rates[1:] or rates)
    bytes_per_image = read_manifest(folder / "manifest.json").mean_prefix_bytes
    assert bytes_per_image is not None  # set when its records were opened
    bandwidth = bandwidth_for(images_per_s, bytes_per_image, share)
    measured = Calibration(images_per_s, bytes_per_image, share, bandwidth)
    write_atomic(path, [json.dumps(asdict(measured), indent=2).encode() + b"\n"])
    return measured


def _read(path: Path, share: float) -> Calibration:
    try:
        found = Calibration(**json.loads(path.read_bytes()))
        usable = found.bandwidth_mib_per_s > 0
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}. Delete it to measure this machine again.") from error
    if not usable:
        raise RunError(
            f"{path}: bandwidth_mib_per_s={found.bandwidth_mib_per_s}; wanted a rate above 0. Delete it to "
            "measure this machine again."
        )
    if found.share != share:
        raise RunError(
            f"{path} was measured with baseline_share={found.share:g}, but it is {share:g} now: the runs in "
            "its folder were made with the old value. Give another out=..., or delete that folder."
        )
    return found
