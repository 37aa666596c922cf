"""Components of a user's own package, one of every kind, trained with from the command line."""

import json
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
from pcr_exp.runs.manifest import read_manifest
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
    "kept.py": '''
from dataclasses import dataclass

from pcr_exp.activations.codec import LosslessCodec
from pcr_exp.config.activations import ActivationsConfig
from pcr_exp.config.components import register


@dataclass(kw_only=True, slots=True)
class HalvesConfig(ActivationsConfig):
    name: str = "error_bounded"
    codec: str = "halves"
    at_least: float = 0.0


class Halves:
    """Every value rounded to 16 bits; the small ones exactly."""

    def __init__(self, at_least: float) -> None:
        self.at_least = at_least

    def encode(self, values, nonzero, bound):
        rounded = values.half().to(values.dtype)
        return LosslessCodec().encode(rounded.where(values.abs() >= self.at_least, values), nonzero, bound)


@register("activations.codec", "halves", HalvesConfig)
def open_halves(config: HalvesConfig) -> Halves:
    return Halves(config.at_least)
''',
    "echo.py": '''
from dataclasses import dataclass

import numpy as np

from pcr_exp.config.components import register
from pcr_exp.config.echo import EchoConfig
from pcr_exp.loading.order import Uses, epoch_order
from pcr_exp.loading.stage import Stage, StageInputs


@dataclass(kw_only=True, slots=True)
class ThereAndBackConfig(EchoConfig):
    name: str = "there_and_back"
    times: int = 1

    def num_samples(self, num_fresh: int) -> int:
        return num_fresh * (1 + self.times)


@register("echo", "there_and_back", ThereAndBackConfig)
class ThereAndBack(Stage):
    """An epoch in its order, and then so many times the other way round."""

    def __init__(self, config: ThereAndBackConfig, inputs: StageInputs) -> None:
        super().__init__(inputs)
        self.num_batches = -(-config.num_samples(inputs.num_samples) // inputs.batch_size)
        self._times = config.times

    def order(self, fresh, epoch):
        uses = []
        for slot in fresh:
            there = np.arange(len(slot.records))
            way = np.concatenate([there, *[there[::-1]] * self._times])
            repeats = np.repeat(np.arange(1 + self._times), len(there))
            uses.append(Uses(slot.records[way], slot.samples[way], repeats))
        return epoch_order(uses, self._batch_size)
''',
    "task.py": '''
from dataclasses import dataclass

from pcr_exp.config.components import register
from pcr_exp.config.training import TaskConfig
from pcr_exp.training.task import Classification, Headline


@dataclass(kw_only=True, slots=True)
class DoubtConfig(TaskConfig):
    name: str = "doubt"
    share_of_loss: float = 0.5


@register("task", "doubt", DoubtConfig)
class Doubt(Classification):
    """Classes as always, but judged by how seldom the model is wrong, and with a smaller loss."""

    headline = Headline("seldom_wrong", "share of images not mistaken")

    def loss(self, outputs, target):
        return self.config.share_of_loss * Classification.loss(self, outputs, target)

    def metrics(self, tally):
        found = Classification.metrics(self, tally)
        return {**found, "val_seldom_wrong": 1 - (1 - found["val_top1"]) ** 2}
''',
    "image_codec.py": '''
import io

import numpy as np
from PIL import Image

from pcr_exp.config.components import register
from pcr_exp.images.codec import GROUP
from pcr_exp.images.decode import WholeJpeg
from pcr_exp.images.decoded import DecodedImage


class TwoSizes(WholeJpeg):
    """A thumbnail of 16 x 16 raw pixels is group 1, the whole file is group 2."""

    name = "two-sizes"
    num_groups = 2

    def encode(self, original, max_pixels):
        with Image.open(io.BytesIO(original)) as image:
            return np.asarray(image.convert("RGB").resize((16, 16))).tobytes() + original

    def split(self, encoded):
        return [encoded[:768], encoded[768:]]

    def open_decoder(self, mode, max_pixels):
        def decode(file, group, name):
            if group == 1:
                return DecodedImage(np.frombuffer(file, np.uint8).reshape(16, 16, 3))
            with Image.open(io.BytesIO(bytes(file)[768:])) as image:
                return DecodedImage(np.asarray(image.convert("RGB")))

        return decode


@register(GROUP, TwoSizes.name)
def open_two_sizes() -> TwoSizes:
    return TwoSizes()
''',
    "configs/dataset/stripes.yaml": """
defaults: [stripes_schema, _self_]
name: stripes
root: ???
label: width
images_per_record: 4
targets:
  seldom_wrong: 0.9
""",
    "configs/scan/alternating.yaml": """
defaults: [alternating_schema, _self_]
name: alternating
group: 2
candidates: [1, 2]
""",
    "configs/model/patches.yaml": """
defaults: [patches_schema, _self_]
name: patches
""",
    "configs/gradients/rounded.yaml": """
defaults: [rounded_schema, _self_]
name: rounded
""",
    "configs/activations/halves.yaml": """
defaults: [halves_schema, _self_]
bounds: fixed
""",
    "configs/echo/there_and_back.yaml": """
defaults: [there_and_back_schema, _self_]
times: 2
""",
    "configs/task/doubt.yaml": """
defaults: [doubt_schema, _self_]
""",
}
OWN = [
    *("dataset=stripes", "model=patches", "scan=alternating", "task=doubt", "echo=there_and_back"),
    *("activations=halves", "records.codec=two-sizes"),
]


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


def assert_all_were_used(runs: Path) -> None:
    (run,) = (path for path in runs.iterdir() if path.is_dir())
    assert run.name.startswith("stripes-width-patches-alternating-unlimited-there_and_back-error_bounded-")
    assert "-doubt-rounded_ddp_x2-" in run.name
    last = read_rows(run / "rows.jsonl")[-1]
    assert 0 < last["pushed_bytes"] < 4 * last["pushed_values"]  # 16 bits, where the codec was used
    assert last["samples_trained"] == 3 * last["samples_seen"] > 0
    assert 0 <= last["val_seldom_wrong"] <= 1
    assert read_manifest(run / "manifest.json").headline == "seldom_wrong"
    (index,) = runs.parent.glob("records/*/train/pcr/index.json")
    assert json.loads(index.read_text())["scans"] == "two-sizes"
    assert "at_least: 0.0" in (run / "config.yaml").read_text()


def train_with(_processes: Processes, package: Path, overrides: list[str]) -> str:
    sys.path.insert(0, str(package))
    return train(compose("train", *overrides))


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


def test_a_package_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    done = started(tmp_path, "-m", "experiments.train", "components=[no_such_package]", "--help")
    assert done.returncode == 1
    assert "components=[no_such_package]: 'no_such_package' cannot be imported" in done.stderr
