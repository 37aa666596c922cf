"""Components of a user's own package, one of every kind, train together from the command line."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gloo_processes import free_port, spawned
from PIL import Image

from pcr_exp.cli.train import train
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.errors import ConfigError
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import read_rows
from pcr_exp.training.distributed.processes import Processes

REPO = Path(__file__).parents[2]
USERS_CODE = Path(__file__).parent / "users_code"
"""Folder of the package `garden`, which stands for a user's own code."""
NOT_THERE = r"components=\[no_such_package\]: 'no_such_package' cannot be imported"
OWN = [
    *("dataset=stripes", "model=patches", "scan=alternating", "task=doubt", "echo=there_and_back"),
    *("activations=halves", "records.codec=two-sizes"),
]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Folder outside this repository that holds the package `garden`."""
    return Path(shutil.copytree(USERS_CODE, tmp_path / "code"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(24):
        for name, period_px in (("narrow", 4), ("wide", 16)):
            columns = 255 * ((np.arange(64) + number) // period_px % 2)
            pixels = np.broadcast_to(columns[None, :, None], (64, 64, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{name}_{number:02d}.jpg")
    return folder


def started(folder: Path, *arguments: str, cwd: Path = REPO) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), str(REPO)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def settings(images: Path, tmp_path: Path) -> list[str]:
    places = {"dataset.root": images, "records.root": tmp_path / "records", "runs_root": tmp_path / "runs"}
    return [
        *("components=[garden]", *OWN, "gradients=rounded", "gradients.min_values=16"),
        *(f"{key}={place}" for key, place in places.items()),
        *("training=debug", "training.num_threads=1", "loader.num_workers=0", "loader.lanes=2"),
    ]


def assert_all_were_used(runs: Path) -> None:
    (run,) = (path for path in runs.iterdir() if path.is_dir())
    assert run.name.startswith("stripes-width-patches-alternating-unlimited-there_and_back-error_bounded-")
    assert "-doubt-rounded_ddp_x2-" in run.name
    last = read_rows(run / "rows.jsonl")[-1]
    assert 0 < last["pushed_bytes"] < 4 * last["pushed_values"]  # 16 bits a value where the codec was used
    assert last["samples_trained"] == 3 * last["samples_seen"] > 0
    assert 0 <= last["val_seldom_wrong"] <= 1
    assert read_manifest(run / "manifest.json").headline == "seldom_wrong"
    (index,) = runs.parent.glob("records/*/train/pcr/index.json")
    assert json.loads(index.read_text())["scans"] == "two-sizes"
    assert "at_least: 0.0" in (run / "config.yaml").read_text()


def train_with(_processes: Processes, package: Path, overrides: list[str]) -> str:
    sys.path.insert(0, str(package))
    return train(compose("train", TrainConfig, *overrides))


@pytest.mark.program
def test_a_users_own_components_train_together(package: Path, images: Path, tmp_path: Path) -> None:
    assert spawned(train_with, 2, package, settings(images, tmp_path)) == ["finished"] * 2
    assert_all_were_used(tmp_path / "runs")


@pytest.mark.slow
def test_a_users_own_components_train_under_torchrun(package: Path, images: Path, tmp_path: Path) -> None:
    done = started(
        package,
        *("-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-port", str(free_port()), "-m", "experiments.train"),
        *(*settings(images, tmp_path), f"hydra.run.dir={tmp_path}/hydra"),
    )
    assert done.returncode == 0, done.stderr
    assert_all_were_used(tmp_path / "runs")


@pytest.mark.program
def test_an_installed_package_is_found_by_its_entry_point(package: Path, images: Path) -> None:
    info = package / "garden-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: garden\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pcr_exp.components]\ngarden = garden\n")
    arguments = ["-m", "experiments.train", *OWN, f"dataset.root={images}", "--cfg", "job"]
    done = started(package, *arguments)
    assert done.returncode == 0, done.stderr
    assert "separator: _" in done.stdout and "patch_px: 8" in done.stdout and "every: 1" in done.stdout
    assert "times: 2" in done.stdout and "share_of_loss: 0.5" in done.stdout
    (info / "entry_points.txt").write_text("[pcr_exp.components]\ngarden = gardens\n")
    done = started(package, *arguments)
    assert done.returncode == 1
    assert "the entry point 'garden' of the group pcr_exp.components: 'gardens' cannot" in done.stderr


@pytest.mark.program
def test_the_installed_command_finds_a_package_in_the_working_folder(package: Path, images: Path) -> None:
    command = Path(sys.executable).with_name("pcr-exp")
    named = ("components=[garden]", *OWN, f"dataset.root={images}")
    done = started(REPO, str(command), "train", *named, "--cfg", "job", cwd=package)
    assert done.returncode == 0, done.stderr
    assert "patch_px: 8" in done.stdout


def test_a_package_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=NOT_THERE):
        compose("train", TrainConfig, "components=[no_such_package]")


@pytest.mark.program
def test_a_package_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    done = started(tmp_path, "-m", "experiments.train", "components=[no_such_package]", "--help")
    assert done.returncode == 1
    assert re.search(NOT_THERE, done.stderr)
