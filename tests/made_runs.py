from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from pcr_exp.analysis.page import Output, Page
from pcr_exp.config.commands import TrackingConfig, TrainConfig
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.related_methods import EchoConfig, GradientsConfig, NetworkConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.training import ModelConfig, TrainingConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.policies.schedule import ScheduleConfig
from pcr_exp.runs.directory import claim
from pcr_exp.runs.manifest import begin_at, new_manifest, write_manifest
from pcr_exp.runs.rows import RowFile


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """Return `write_run`: directories as `run_training` writes them, with given scores and epoch seconds."""
    return write_run


def write_run(
    root: Path,
    scan: str,
    *,
    seed: int = 0,
    epoch_s: float = 10,
    top1: Sequence[float] = (0.3, 0.6, 0.9),
    status: str = "finished",
    epochs: int | None = None,
    echo: EchoConfig | None = None,
    batch_size: int = 16,
    learning_rate: float = 0.1,
    gradients: GradientsConfig | None = None,
    mbit_per_s: float | None = None,
    coded_bits: float = 32.0,
    more: Mapping[str, Any] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run. `more` sets parts of the configuration, and `columns` sets columns of every row."""
    group = int(scan.removeprefix("group_")) if scan.startswith("group_") else 1
    neighbours: dict[str, Any] = {
        "scan": _scan_config(scan, group),
        "echo": echo or EchoConfig(),
        "gradients": gradients or GradientsConfig(),
        "network": NetworkConfig(bandwidth_mbit_per_s=mbit_per_s),
        "world_size": 1 if gradients is None else 2,
    }
    config = TrainConfig(
        dataset=PhotosConfig(
            name="photos",
            label="photo",
            images_per_record=16,
            targets={"top1": 0.6, "balanced_accuracy": 0.5},
        ),
        model=ModelConfig(name="resnet18"),
        training=TrainingConfig(
            epochs=epochs or len(top1),
            batch_size=batch_size,
            image_size=64,
            eval_image_size=64,
            learning_rate=learning_rate,
        ),
        tracking=TrackingConfig(name="none"),
        seed=seed,
        runs_root=str(root),
        **({"storage": StorageConfig(name="hdd", bandwidth_mib_per_s=8.0)} | neighbours | dict(more or {})),
    )
    with claim(config, "0" * 16) as directory:
        manifest = new_manifest(config, torch.device("cpu"), None, name=directory.path.name, images="0" * 16)
        manifest.status = status
        manifest.mean_prefix_bytes = 1000.0 * group
        manifest.cpu, manifest.num_cores, manifest.num_classes = "Test CPU", 2, 8
        begin_at(manifest, 0)
        write_manifest(directory.manifest_path, manifest)
        with RowFile(directory.rows_path, 0) as rows:
            for epoch, accuracy in enumerate(top1, start=1):
                for kind in ("train", "eval"):
                    row = _row(kind, epoch, group, epoch_s, accuracy)
                    if echo is not None:
                        row |= _stages(row, echo)
                    if gradients is not None:
                        row |= _traffic(row, gradients.mode, coded_bits)
                    rows.append(row | (columns or {}))
    return directory.path


def _stages(row: dict[str, Any], echo: EchoConfig) -> dict[str, Any]:
    """Return stage columns: reading takes 40 ms per fresh image, an update 10 ms per image."""
    return {
        "samples_trained": round(echo.factor * row["samples_seen"]),
        "upstream_s_per_sample": 0.04,
        "downstream_s_per_sample": 0.01,
        "upstream_ratio": 4.0,
    }


def _scan_config(scan: str, group: int) -> ScanConfig:
    """Return a static level or, for any other name, a policy."""
    if scan != "baseline" and not scan.startswith("group_"):
        return ScheduleConfig(name=scan, groups=[1, 5], milestones=[1])
    return ScanConfig(name=scan, encoding="baseline" if scan == "baseline" else "pcr", group=group)


def _traffic(row: dict[str, Any], mode: str, coded_bits: float) -> dict[str, Any]:
    """Return traffic of two processes: 1,000 values an update, 200 small; pulls take twice a push's bits."""
    num_coded = 2 * 800 * row["step"]
    num_plain = 2 * 200 * row["step"]
    pulls = mode == "server"
    pushed_bytes = round(coded_bits * num_coded / 8) + 4 * num_plain
    pulled_bytes = round(2 * coded_bits * num_coded / 8) + 4 * num_plain
    return {
        "bytes_sent": pushed_bytes,
        "pushed_values": num_coded + num_plain,
        "pushed_bytes": pushed_bytes,
        "pushed_plain_values": num_plain,
        "pulled_values": pulls * (num_coded + num_plain),
        "pulled_bytes": pulls * pulled_bytes,
        "pulled_plain_values": pulls * num_plain,
        "network_s": 0.5 * (row["train_s"] + row["wait_s"]),
    }


def _row(kind: str, epoch: int, group: int, epoch_s: float, top1: float) -> dict[str, Any]:
    """Return a row: epochs of 64 images, a quarter training; then 2 s of evaluation and 1 s of other work."""
    num_off_clock = epoch if kind == "eval" else epoch - 1
    shared = {
        "kind": kind,
        "epoch": epoch,
        "step": 4 * epoch,
        "samples_seen": 64 * epoch,
        "train_s": 0.25 * epoch_s * epoch,
        "wait_s": 0.75 * epoch_s * epoch,
        "eval_s": 2.0 * num_off_clock,
        "other_s": 1.0 * num_off_clock,
        "probe_s": 0.0,
        "probe_bytes": 0,
        "wall_s": epoch_s * epoch + 3.0 * num_off_clock,
        "scan_group": group,
        "record_bytes": 64_000 * group * epoch,
        "bytes_read": 70_000 * group * epoch,
        "learning_rate": 0.1,
        "train_loss": 1.0 / epoch,
    }
    if kind == "train":
        rates = {"images_per_s": 64 / epoch_s, "storage_mib_per_s": 0.1, "wait_share": 0.75}
        return shared | rates
    scores = {"val_loss": 1.2 / epoch, "val_top1": top1, "val_top5": None, "num_val": 32}
    return shared | scores | {"eval_group": "full"}


def written(write: Page, frame: pd.DataFrame, folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the tables and figures that a page writes for a frame of runs."""
    output = Output(frame, folder)
    write(output)
    return output.tables, output.figures
