"""Public interface of the package: its names, types and version, and a cheap import."""

import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import pcr_exp

REPO = Path(__file__).parents[1]


def test_every_name_is_there_and_named_twice_alike() -> None:
    assert set(pcr_exp.__all__) == {*pcr_exp._MODULES, "__version__"}
    for name in pcr_exp.__all__:
        assert getattr(pcr_exp, name) is not None
    assert dir(pcr_exp) == sorted(pcr_exp.__all__)


def test_other_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'RecordLoder'; it has .*RecordLoader"):
        pcr_exp.RecordLoder  # noqa: B018


def test_it_is_typed_and_its_version_is_the_project_s() -> None:
    assert (files("pcr_exp") / "py.typed").is_file()
    assert pcr_exp.__version__ == tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]


def test_importing_it_imports_no_torch() -> None:
    program = "import sys, pcr_exp; print('torch' in sys.modules, 'hydra' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
