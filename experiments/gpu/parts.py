"""The parts of what a GPU is asked: images, tests, memory, training. Rows name device, n and commit."""

from __future__ import annotations

import logging
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import torch

from experiments.gpu.settings import GpuConfig
from pcr_exp.analysis.reporting_rules import others_cpu_share
from pcr_exp.analysis.runs import read_timed_runs
from pcr_exp.cli.dry_run import Planned
from pcr_exp.cli.terminal import track_files
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.datasets.sample import Dataset, open_dataset
from pcr_exp.errors import DatasetError, RunError
from pcr_exp.measuring.updates import largest_batch, measure_all_reduce, measure_updates, settings_of
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import MIB
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.provenance import cpu_model, git_state, gpu_model, num_cores, write_measured
from pcr_exp.training.clocks import open_device
from pcr_exp.training.report import interval_rates

_SPLITS = ("train", "val")


def copy_classes(dataset: Dataset, label: str, max_images: int, root: Path) -> tuple[int, int]:
    """Copy the first images of train and val to `root/<split>/<class>/`, as `dataset=folder` reads them.

    Val gets a fifth of them. Classes without an image in both are left out. Nothing of the dataset is
    changed, and a folder that is there already is refused.

    Args:
        dataset: In its lasting order, so that the first images are a random subset.
        label: What class folders are named by.
        max_images: Of both splits together.
        root: Is made.

    Returns:
        How many images were copied, and their bytes.

    Raises:
        DatasetError: `root` is there already, or fewer than two classes are left.
    """
    if root.exists():
        raise DatasetError(f"{root} is there already: delete it, or give another folder to copy to.")
    numbers = {"val": max(1, max_images // 5)}
    numbers["train"] = max_images - numbers["val"]
    chosen = {split: dataset.splits[split][: numbers[split]] for split in _SPLITS}
    kept = set.intersection(*({sample.labels[label] for sample in chosen[split]} for split in _SPLITS))
    if len(kept) < 2:
        raise DatasetError(
            f"{dataset.name}: {len(kept)} classes of {label!r} have images among the first {max_images}; "
            "wanted two or more. Copy more images."
        )
    num_images = num_bytes = 0
    for split in _SPLITS:
        for sample in chosen[split]:
            if sample.labels[label] in kept:
                folder = root / split / dataset.classes[label][sample.labels[label]]
                folder.mkdir(parents=True, exist_ok=True)
                content = sample.file.read_bytes()
                (folder / f"{num_images:06d}{Path(sample.id).suffix}").write_bytes(content)
                num_images, num_bytes = num_images + 1, num_bytes + len(content)
    return num_images, num_bytes


log = logging.getLogger(__name__)

_SOON_S = 60
"""What pytest is given beyond `max_s` to end by itself."""

Row = dict[str, Any]


def plan(config: GpuConfig) -> Planned:
    """One part, which begins nothing new after its time."""
    return Planned([f"part {config.part}, into {config.out}"], {"seconds": config.max_s})


def gpu(config: GpuConfig) -> str:
    """One part: measure, write its rows and, if wanted, an archive; returns "finished"."""
    device = open_device(config.device)
    until_s = time.monotonic() + config.max_s
    out = Path(config.out) / config.part
    make_folder(out)
    rows: list[Row] = []
    skipped: list[str] = []
    for name, measure in PARTS[config.part](config, device, out):
        if time.monotonic() > until_s:
            skipped.append(name)
            continue
        log.info("%s", name)
        rows += [{**row, **_where(device)} for row in measure()]
        pd.DataFrame(rows).to_csv(out / f"{config.part}.csv", index=False)  # again and again: it may be cut
    for name in skipped:
        log.warning("no time was left for %s (max_s=%g)", name, config.max_s)
    write_measured(out / "measured.json", {"part": config.part, "skipped": skipped, **_where(device)})
    files = [path for path in (out / f"{config.part}.csv", out / "measured.json") if path.exists()]
    track_files(config.tracking, f"gpu-{config.part}", out, asdict(config), files)
    print(pd.DataFrame(rows).to_string(index=False))
    if config.archive is not None:
        with tarfile.open(config.archive, "w:gz") as archive:
            archive.add(out, arcname=config.part, filter=_without_checkpoints)
    return "finished"


Jobs = Iterator[tuple[str, Callable[[], list[Row]]]]


def pack(config: GpuConfig, device: torch.device, out: Path) -> Jobs:  # noqa: ARG001
    """Copy a random part of each dataset into class folders."""
    for name in config.datasets:
        yield f"images of {name}", partial(_packed, config, name)


def tests(config: GpuConfig, device: torch.device, out: Path) -> Jobs:
    """One job: all tests marked `gpu` in the files that have such a mark."""
    root = Path(config.tests)
    files = sorted(root.rglob("test_*.py")) if root.is_dir() else [root]
    marked = [str(path) for path in files if path.is_file() and "mark.gpu" in path.read_text()]
    if not marked:
        raise RunError(
            f"tests={config.tests}: no test marked gpu there. Wanted the folder tests/ of a checkout."
        )

    def run() -> list[Row]:
        report = out / "junit.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, f"--junitxml={report}", *marked],
            capture_output=True,
            text=True,
            timeout=config.max_s + _SOON_S,
            check=False,
        )
        (out / "output.txt").write_text(done.stdout + done.stderr)
        if not report.is_file():
            raise RunError(f"pytest ended with {done.returncode} and no report: {done.stderr[-500:]}")
        return [_outcome(case) for case in ElementTree.parse(report).iter("testcase")]

    yield f"tests on {device}", run


def memory(config: GpuConfig, device: torch.device, out: Path) -> Jobs:  # noqa: ARG001
    """Updates of every model, way of keeping activations and precision; largest batches; NCCL."""
    yield "all_reduce", partial(_all_reduce, config, device)
    precisions = (True, False) if device.type == "cuda" else (False,)
    cases = [
        train_config(config, model, f"activations={activations}", f"training.amp={amp}".lower())
        for model, activations, amp in product(config.models, config.ways, precisions)
    ]
    for case in cases:
        yield f"updates of {_words(case)}", partial(_updates, case, device, config.num_updates)
    for case in cases:
        yield f"the largest batch of {_words(case)}", partial(_largest, case, device, config.max_batch_size)


def training(config: GpuConfig, device: torch.device, out: Path) -> Jobs:
    """Runs of seconds on real images, which lie below `data_root`."""
    workers = max(0, num_cores() - 2) if config.num_workers is None else config.num_workers
    for dataset, model, storage, scan in product(
        config.datasets, config.models, config.storages, config.scans
    ):
        run = train_config(
            config,
            model,
            *(
                "dataset=folder",
                f"dataset.name={dataset}",
                f"dataset.root={Path(config.data_root) / dataset}",
            ),
            *(f"scan={scan}", f"storage={storage}", f"loader.num_workers={workers}"),
            *(f"training.stop_after_s={config.run_s}", "training.epochs=1000", "training.exclusive=true"),
            *(f"training.device={device}", f"runs_root={out / 'runs'}", f"records.root={out / 'records'}"),
        )
        yield f"{dataset} {model} {storage} {scan}", partial(_trained, run)


def train_config(config: GpuConfig, model: str, *overrides: str) -> TrainConfig:
    """A run's settings, as `experiments.train` composes them."""
    return compose(
        "train",
        TrainConfig,
        f"model={model}",
        f"training.image_size={config.image_size}",
        f"training.batch_size={config.batch_size}",
        "training.log_every_steps=1",
        *overrides,
        *config.overrides,
    )


def _packed(config: GpuConfig, name: str) -> list[Row]:
    settings = compose(
        "train", TrainConfig, f"dataset={name}", f"dataset.root={Path(config.source_root) / name}"
    ).dataset
    root = Path(config.data_root) / name
    num_images, num_bytes = copy_classes(open_dataset(settings), settings.label, config.max_images, root)
    return [{"measure": "pack", "dataset": name, "n": num_images, "num_bytes": num_bytes}]


def _all_reduce(config: GpuConfig, device: torch.device) -> list[Row]:
    num_bytes = int(config.reduce_mib * MIB)
    return [{"measure": "all_reduce", **measure_all_reduce(device, num_bytes, config.num_updates)}]


def _updates(case: TrainConfig, device: torch.device, num_updates: int) -> list[Row]:
    return [{"measure": "update", **settings_of(case), **measure_updates(case, device, num_updates)}]


def _largest(case: TrainConfig, device: torch.device, most: int) -> list[Row]:
    found = largest_batch(case, device, most)
    return [{"measure": "largest_batch", **settings_of(case), "batch_size": found, "n": 1}]


def _trained(config: TrainConfig) -> list[Row]:
    name = run_training(config, progress=False).run_id
    (run,) = [run for run in read_timed_runs(config.runs_root) if run.manifest.run_id == name]
    first = next(row for row in run.rows if row["kind"] == "train")
    last = run.rows[-1]
    passed = interval_rates(first, last)
    return [
        {
            "measure": "training",
            **settings_of(config),
            "dataset": run.manifest.dataset,
            "scan": config.scan.name,
            "storage": config.storage.name,
            "bandwidth_mib_per_s": config.storage.bandwidth_mib_per_s,
            "num_workers": config.loader.num_workers,
            "batch_size": config.training.batch_size,
            "n": last["step"] - first["step"],
            "image_bytes": run.manifest.mean_prefix_bytes,
            **passed,
            "others_cpu_share": others_cpu_share(run.rows),
        }
    ]


def _where(device: torch.device) -> Row:
    git_sha, git_dirty = git_state()
    return {
        "device": gpu_model(device) or cpu_model(),
        "num_cores": num_cores(),
        "torch": torch.__version__,
        "git_sha": git_sha,
        "git_dirty": git_dirty,
    }


def _outcome(case: ElementTree.Element) -> Row:
    kinds = {child.tag for child in case}
    found = next((kind for kind in ("failure", "error", "skipped") if kind in kinds), "passed")
    return {
        "test": f"{case.get('classname')}::{case.get('name')}",
        "outcome": found,
        "seconds": float(case.get("time", "nan")),
        "n": 1,
    }


def _words(config: TrainConfig) -> str:
    facts = settings_of(config)
    return f"{facts['model']}, activations {facts['activations']}, {'amp' if facts['amp'] else 'float32'}"


def _without_checkpoints(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    return None if {"records", "wandb"} & set(parts) or entry.name.endswith(".pt") else entry


PARTS: dict[str, Callable[[GpuConfig, torch.device, Path], Jobs]] = {
    "pack": pack,
    "tests": tests,
    "memory": memory,
    "training": training,
}
