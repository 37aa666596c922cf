"""User code is part of a run's identity: a run with edited code is another run."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from composing import compose

from pcr_exp.analysis.distinguishing import describe_differences
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import Run
from pcr_exp.config import component_code as module
from pcr_exp.config import components
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.component_code import component_code
from pcr_exp.runs.directory import claim
from pcr_exp.runs.identity import run_id, scientific_part
from pcr_exp.runs.manifest import new_manifest

IMAGES = "0123456789abcdef"
POLICY = """
from dataclasses import dataclass

from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.policies.policy import OneGroup
{imports}

@dataclass(kw_only=True, slots=True)
class Config(CandidatesConfig):
    pass

@register("scan", "{name}", Config)
def open_it(config, run):
    {body}
    return OneGroup(config.group, config.candidates)
"""


@dataclass
class Package:
    """A user's package or module, and its files."""

    name: str
    folder: Path

    def write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def policy(self, file: str, *, imports: str = "", body: str = "pass") -> None:
        self.write(file, POLICY.format(name=self.name, imports=imports, body=body))

    def config(self) -> TrainConfig:
        importlib.invalidate_caches()
        components.find_components([self.name])
        config = compose("train")
        chosen = components.schemas("scan")[self.name]
        return replace(config, scan=chosen(name=self.name, encoding="pcr", group=5, candidates=[1, 5]))

    def id(self) -> str:
        return run_id(self.config(), IMAGES)


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[Callable[[], Package]]:
    """Makes packages with names unique to a test; their registrations are removed afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {group: dict(options) for group, options in components._components.items()}
    packages = list(components._packages)
    made: list[str] = []

    def make() -> Package:
        made.append(f"users_{abs(hash((request.node.name, len(made)))) % 10**9}")
        return Package(made[-1], tmp_path)

    yield make
    components._components.clear()
    components._components.update(before)
    components._packages[:] = packages
    for name in [name for name in sys.modules if name.partition(".")[0] in made]:
        del sys.modules[name]


def test_components_of_ours_have_no_code_and_their_ids_stay(users: Callable[[], Package]) -> None:
    before = run_id(compose("train"), IMAGES)
    other = users()
    other.policy(f"{other.name}.py")
    other.config()  # registered, but not chosen
    assert component_code(compose("train")) == {}
    assert run_id(compose("train"), IMAGES) == before


def test_an_edited_policy_is_another_run(users: Callable[[], Package], tmp_path: Path) -> None:
    own = users()
    own.policy(f"{own.name}.py")
    first = replace(own.config(), runs_root=str(tmp_path / "runs"))
    with claim(first, IMAGES) as directory:
        name = directory.path.name
    with claim(first, IMAGES) as again:
        assert again.path.name == name
    own.policy(f"{own.name}.py", body="config.group = 1")
    with claim(first, IMAGES) as edited:
        assert edited.path.name != name
    assert name.rpartition("-")[0] == edited.path.name.rpartition("-")[0], "the words are the same"


@pytest.mark.parametrize("imports", ["from .deep.helper import LIMIT", "from {name}.deep import helper"])
def test_so_is_an_edited_module_that_it_imports_wherever_it_is_imported(
    users: Callable[[], Package], imports: str
) -> None:
    own = users()
    statement = imports.format(name=own.name)
    own.write(f"{own.name}/__init__.py", "from . import policy")
    own.policy(f"{own.name}/policy.py", body=statement)  # inside a function, so not imported yet
    own.write(f"{own.name}/deep/__init__.py", "")
    own.write(f"{own.name}/deep/helper.py", "LIMIT = 1")
    own.write(f"{own.name}/notes.py", "# of nothing")
    first = own.id()
    importlib.import_module(f"{own.name}.deep.helper")
    assert own.id() == first, "whether it was imported before does not count"
    own.write(f"{own.name}/notes.py", "# of something else")
    assert own.id() == first, "no component imports it"
    own.write(f"{own.name}/deep/helper.py", "LIMIT = 2")
    assert own.id() != first


def test_modules_beside_a_module_count_and_libraries_do_not(users: Callable[[], Package]) -> None:
    own, beside = users(), users()
    own.policy(f"{own.name}.py", imports=f"import {beside.name}, numpy, torch.nn")
    beside.write(f"{beside.name}.py", "LIMIT = 1")
    first = own.config()
    assert set(component_code(first)) == {own.name, beside.name}
    name = run_id(first, IMAGES)
    beside.write(f"{beside.name}.py", "LIMIT = 2")
    assert run_id(first, IMAGES) != name


def test_another_version_of_an_installed_package_is_another_run(
    users: Callable[[], Package], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = users()
    own.policy(f"{own.name}/__init__.py")
    metadata = f"Metadata-Version: 2.1\nName: {own.name}\nVersion: 1.0\n"
    own.write(f"{own.name}-1.0.dist-info/METADATA", metadata)
    own.write(f"{own.name}-1.0.dist-info/top_level.txt", own.name)
    monkeypatch.setattr(module, "_installed", module.packages_distributions)
    config = own.config()
    assert component_code(config)[f"version of {own.name}"] == "1.0"
    first = run_id(config, IMAGES)
    own.write(f"{own.name}-1.0.dist-info/METADATA", metadata.replace("1.0", "1.1"))
    assert run_id(config, IMAGES) != first


def test_a_module_without_a_source_file_is_said_to_be_unwatched(
    users: Callable[[], Package], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = users()
    own.policy(f"{own.name}.py")
    config = own.config()
    monkeypatch.delattr(sys.modules[own.name], "__file__")
    monkeypatch.setattr(sys.modules[own.name], "__spec__", None)
    assert component_code(config) == {}
    assert f"{own.name} has no source file: runs cannot detect that it was edited" in caplog.text


def test_tables_do_not_average_runs_of_other_code(configure: Callable[..., TrainConfig]) -> None:
    manifest = new_manifest(configure(), torch.device("cpu"), None, name="a", images=IMAGES)
    assert list(manifest.component_code) == ["tiny_model"], "tests' own model"
    counts = ("epoch", "samples_seen", "record_bytes", "probe_bytes", "bytes_read")
    clocks = ("train_s", "wait_s", "probe_s", "eval_s", "wall_s")
    row = {"kind": "train", **dict.fromkeys((*counts, *clocks), 1)}
    runs = [
        Run(replace(manifest, component_code=code, seed=seed), asdict(configure()), [row])
        for code, seed in (({}, 0), ({"mine": "0123"}, 0), ({"mine": "4567"}, 0), ({"mine": "0123"}, 1))
    ]
    settings = run_frame(runs)["setting"]
    assert settings[:3].is_unique and settings[3] == settings[1]
    words = describe_differences(
        {str(number): scientific_part(run.settings) for number, run in enumerate(runs[1:3])}
    )
    assert words["0"].startswith("code=") and words["0"] != words["1"]
