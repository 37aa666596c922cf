"""Registering components, and the errors that it can raise."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pcr_exp
from pcr_exp.config.components import OURS, build, names, register, schemas
from pcr_exp.config.compose import named_packages
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.config.training import ModelConfig
from pcr_exp.errors import ConfigError

HEAVY = ("torch", "torchvision", "scipy", "pandas", "matplotlib", "wandb", "cv2", "numpy")


def test_every_component_is_found_without_what_it_needs_to_run() -> None:
    """Composing a configuration, and so `--help`, imports no heavy library."""
    code = f"""
import sys, time
from pcr_exp.config.compose import compose
from pcr_exp.config.components import find_components
began_s = time.process_time()
find_components()
took_s = time.process_time() - began_s
from pcr_exp.config.commands import TrainConfig
compose("train", TrainConfig, "scan=mixture", "gradients=threelc", "dataset=cars")
assert took_s < 0.5, f"finding components took {{took_s}} s"
print(*(name for name in {HEAVY} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_group_has_its_components() -> None:
    assert {"cars", "celebahq", "folder", "ham10000", "imagenet", "photos"} <= set(names("dataset"))
    assert {"static", "schedule", "mixture", "mssim", "cosine", "plateau", "balanced"} <= set(names("scan"))
    assert {"none", "fp16", "threelc", "powersgd"} <= set(names("gradients"))
    assert {"torchvision", "timm"} <= set(names("model"))
    assert schemas("model")["torchvision"] is ModelConfig


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ConfigError, match=r"gradients=int8: registered by pcr_exp\.gradients\.compared"):

        @register("gradients", "int8", GradientsConfig)
        def mine(config: GradientsConfig, seed: int) -> None:
            """Would replace the registered component."""


def test_settings_that_no_component_has() -> None:
    class MineConfig:
        name = "mine"

    with pytest.raises(
        ConfigError, match="model: 'mine' is not an option with settings of MineConfig; choose one"
    ):
        build("model", MineConfig())


def test_packages_are_named_in_a_list() -> None:
    assert named_packages(["seed=1", "components=[one,two.three]"]) == ["one", "two.three"]
    with pytest.raises(ConfigError, match=r"components=one: wanted a list of packages"):
        named_packages(["components=one"])


def test_every_module_that_registers_something_is_listed() -> None:
    package = Path(pcr_exp.__file__).parent
    registering = {
        "pcr_exp." + ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.rglob("*.py")
        if any(
            isinstance(called, ast.Call) and getattr(called.func, "id", "") == "register"
            for node in ast.walk(ast.parse(path.read_text()))
            for called in getattr(node, "decorator_list", [])
        )
    }
    assert registering - {"pcr_exp.images.decode"} == set(OURS) and len(set(OURS)) == len(OURS)
