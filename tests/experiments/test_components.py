"""Components of a user's own package: a policy, a dataset, a model and a gradient codec."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gloo_processes import free_port, spawned
from PIL import Image

from experiments.train import train
from pcr_exp.config.compose import compose
from pcr_exp.runs.rows import read_rows
from pcr_exp.training.distributed.processes import Processes

REPO = Path(__file__).parents[2]
PACKAGE = {
    "__init__.py": "",
    "dataset.py": '''
from dataclasses import dataclass
from pathlib import Path

from pcr_exp.config.components import register
from pcr_exp.config.dataset import OwnSplitConfig
from pcr_exp.datasets.looked import Looked
from pcr_exp.datasets.sample import Dataset, Sample, make_dataset


@dataclass(kw_only=True, slots=True)
class StripesConfig(OwnSplitConfig):
    separator: str = "_"


@register("dataset", "stripes", StripesConfig)
def read(config: StripesConfig) -> Dataset:
    """Files such as wide_01.jpg: the class comes before the separator."""
    looked = Looked()
    classes = ["narrow", "wide"]
    samples = [
        Sample(path.name, path, {"width": classes.index(path.name.split(config.separator)[0])})
        for path in looked.images(Path(config.root))
    ]
    return make_dataset(config, samples, {"width": classes}, looked)
''',
    "policy.py": '''
from dataclasses import dataclass

from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.policies.policy import OneGroup, PolicyInputs


@dataclass(kw_only=True, slots=True)
class AlternatingConfig(CandidatesConfig):
    every: int = 1


class Alternating(OneGroup):
    """The candidates in turn, another one every so many records."""

    def __init__(self, group: int, candidates: list[int], every: int) -> None:
        super().__init__(group, candidates)
        self._every = every

    def group(self, epoch: int, record: int) -> int | None:
        return self.candidates[record // self._every % len(self.candidates)]


@register("scan", "alternating", AlternatingConfig)
def open_alternating(config: AlternatingConfig, run: PolicyInputs) -> Alternating:
    return Alternating(config.group, config.candidates, config.every)
''',
    "model.py": """
from dataclasses import dataclass

from pcr_exp.config.components import register
from pcr_exp.config.model import ModelConfig


@dataclass(kw_only=True, slots=True)
class PatchesConfig(ModelConfig):
    patch_px: int = 8


@register("model", "patches", PatchesConfig)
def open_patches(config: PatchesConfig, num_classes: int):
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, config.patch_px, config.patch_px),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, num_classes),
    )
""",
    "codec.py": '''
from dataclasses import dataclass

import torch

from pcr_exp.config.components import register
from pcr_exp.config.gradients import GradientsConfig


@dataclass(kw_only=True, slots=True)
class RoundedConfig(GradientsConfig):
    name: str = "rounded"
    step: float = 2.0**-10


class Rounded:
    """Whole numbers of a step, 16 bits each."""

    feedback = True

    def __init__(self, step: float) -> None:
        self.step = step

    def encode(self, values):
        steps = (values / self.step).round().clamp(-32768, 32767).to(torch.int16)
        return steps.view(torch.uint8), steps.float() * self.step

    def decode(self, message, num_values):
        return message.clone().view(torch.int16).float() * self.step


@register("gradients", "rounded", RoundedConfig)
def open_rounded(config: RoundedConfig, seed: int) -> Rounded:
    return Rounded(config.step)
''',
    "configs/dataset/stripes.yaml": """
defaults: [stripes_schema, _self_]
name: stripes
root: ???
label: width
images_per_record: 4
targets:
  top1: 0.9
""",
    "configs/scan/alternating.yaml": """
defaults: [alternating_schema, _self_]
name: alternating
candidates: [1, 5]
""",
    "configs/model/patches.yaml": """
defaults: [patches_schema, _self_]
name: patches
""",
    "configs/gradients/rounded.yaml": """
defaults: [rounded_schema, _self_]
name: rounded
""",
}
OWN = ["dataset=stripes", "model=patches", "scan=alternating"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder that holds the package `garden`."""
    for name, text in PACKAGE.items():
        file = tmp_path / "code" / "garden" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "code"


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


def started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), str(REPO)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPO,
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
        *("training=debug", "loader.num_workers=0", "loader.lanes=2"),
    ]


def assert_all_four_were_used(runs: Path) -> None:
    (run,) = (path for path in runs.iterdir() if path.is_dir())
    assert run.name.startswith("stripes-width-patches-alternating-unlimited-rounded_ddp_x2-")
    last = read_rows(run / "rows.jsonl")[-1]
    assert 0 < last["pushed_bytes"] < 4 * last["pushed_values"]  # 16 bits, where the codec was used


def train_with(_processes: Processes, package: Path, overrides: list[str]) -> str:
    sys.path.insert(0, str(package))
    return train(compose("train", *overrides))


def test_a_users_own_components_train_together(package: Path, images: Path, tmp_path: Path) -> None:
    assert spawned(train_with, 2, package, settings(images, tmp_path)) == ["finished"] * 2
    assert_all_four_were_used(tmp_path / "runs")


@pytest.mark.slow
def test_a_users_own_components_train_under_torchrun(package: Path, images: Path, tmp_path: Path) -> None:
    done = started(
        package,
        *("-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-port", str(free_port()), "-m", "experiments.train"),
        *(*settings(images, tmp_path), f"hydra.run.dir={tmp_path}/hydra"),
    )
    assert done.returncode == 0, done.stderr
    assert_all_four_were_used(tmp_path / "runs")


def test_an_installed_package_is_found_by_its_entry_point(package: Path, images: Path) -> None:
    info = package / "garden-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: garden\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pcr_exp.components]\ngarden = garden\n")
    arguments = ["-m", "experiments.train", *OWN, f"dataset.root={images}", "--cfg", "job"]
    done = started(package, *arguments)
    assert done.returncode == 0, done.stderr
    assert "separator: _" in done.stdout and "patch_px: 8" in done.stdout and "every: 1" in done.stdout
    (info / "entry_points.txt").write_text("[pcr_exp.components]\ngarden = gardens\n")
    done = started(package, *arguments)
    assert done.returncode == 1
    assert "the entry point 'garden' of the group pcr_exp.components: 'gardens' cannot" in done.stderr


def test_a_package_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    done = started(tmp_path, "-m", "experiments.train", "components=[no_such_package]", "--help")
    assert done.returncode == 1
    assert "components=[no_such_package]: 'no_such_package' cannot be imported" in done.stderr
