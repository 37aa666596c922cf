"""The whole slice on the embedded photographs: `make demo`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from pcr_exp.analysis.quality import is_measured
from pcr_exp.analysis.report import Page, write_report
from pcr_exp.cli.dry_run import NOT_KNOWN, Planned
from pcr_exp.cli.figures import show
from pcr_exp.cli.quality import quality
from pcr_exp.cli.shown import track_files
from pcr_exp.cli.train import draw
from pcr_exp.config.commands import DemoConfig, TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.config.measuring import QualityConfig
from pcr_exp.runs.calibration import Calibration, calibrated
from pcr_exp.runs.train_run import run_training

CONSOLE = Console()


def demo(config: DemoConfig, pages: Sequence[Page] = ()) -> str:
    """Prepare, measure, train and draw, also `pages`; returns "finished"."""
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
    # Whoever tries it may have a browser open: what others take of the CPU spoils no lesson of twice as fast.
    runs, quality, figures = (f"{config.out}/{name}" for name in ("runs", "quality", "figures"))
    report = write_report(runs, quality, figures, pages=pages, exclusive_only=False)
    show(report)
    track_files(config.tracking, "demo", Path(config.out), asdict(config), [*report.tables, *report.figures])
    CONSOLE.print(describe(storage), soft_wrap=True, highlight=False)
    return "finished"


def train_config(config: DemoConfig, *overrides: str) -> TrainConfig:
    """One run of the grid, as `experiments.train` would compose it."""
    return compose("train", TrainConfig, *config.overrides, f"runs_root={config.out}/runs", *overrides)


def calibrate(config: DemoConfig) -> Calibration:
    """A bandwidth at which baseline is trained at `baseline_share` of this machine's speed, measured once."""
    CONSOLE.rule("how fast this machine trains")
    run = train_config(config, f"dataset.label={config.labels[0]}", "scan=baseline")
    # Beside the results, so that a second call goes on with the same storage.
    return calibrated(run, config.baseline_share, Path(config.out) / "storage.json")


def describe(storage: Calibration) -> str:
    """What the storage of all runs is, and why."""
    return (
        f"storage: {storage.bandwidth_mib_per_s:g} MiB/s, {storage.share:.0%} of what this machine can train "
        f"on ({storage.images_per_s:.0f} baseline images/s of {storage.bytes_per_image / 1e3:.1f} kB)"
    )


def measure(config: DemoConfig, run: TrainConfig) -> None:
    """Make the records and measure MS-SSIM per scan group, unless that is done."""
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
    """Its grid of trainings."""
    num_runs = len(config.labels) * len(config.scans)
    return Planned([f"{num_runs} trainings on the embedded photographs, into {config.out}", NOT_KNOWN])
