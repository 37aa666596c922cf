"""The package as people install it: a wheel, in an environment away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

REPO = Path(__file__).parents[1]
OF_A_BUILD = (
    *("pcr_exp", "hydra_plugins", "configs", "experiments"),
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
)


def run(*command: str | Path, cwd: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """A command that knows nothing of the checkout; its output is one text."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"COLUMNS": "200", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"} | given
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )


def build(source: Path, **environment: str) -> Path:
    """The wheel of a copy: a build leaves folders where it is done."""
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    for name in OF_A_BUILD:
        if (REPO / name).is_dir():
            shutil.copytree(REPO / name, source / name, ignore=left_out)
        else:
            shutil.copyfile(REPO / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    done = run(*pip, "--wheel-dir", source / "wheels", source, cwd=source, **environment)
    assert done.returncode == 0, done.stdout
    (built,) = (source / "wheels").iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment with the wheel; what that needs is found where it is here."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, with_pip=False, symlinks=True)
    (packages,) = root.glob("lib/python*/site-packages")
    here = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "installed_here.pth").write_text("\n".join(here) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", root / "bin/python", "install", "--quiet", "--no-index"]
    done = run(*pip, "--no-deps", "--ignore-installed", wheel, cwd=root)
    assert done.returncode == 0, done.stdout
    return root / "bin"


def test_without_a_compiler_it_is_built_without_the_library(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build(tmp_path, CC="no-such-compiler")).namelist()
    assert "pcr_exp/images/decoder.py" in names
    assert not [name for name in names if name.endswith(".so")]


def test_nothing_but_the_package_and_its_launchers_lands_at_the_top_level(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    assert top == {"pcr_exp", "hydra_plugins", f"{'-'.join(wheel.stem.split('-')[:2])}.dist-info"}
    plugins = [name for name in names if name.startswith("hydra_plugins/")]  # Hydra looks nowhere else
    assert plugins == ["hydra_plugins/pcr_exp_launchers/__init__.py"]
    configs = {str(path.relative_to(REPO)) for path in (REPO / "configs").rglob("*.yaml")}
    assert configs == {name.removeprefix("pcr_exp/") for name in names if name.endswith(".yaml")}
    built = {name for name in names if name.endswith(".so")}
    libraries = {"pcr_exp/images/_decoder.abi3.so", "pcr_exp/storage/_many_reads.abi3.so"}
    assert built == (libraries if shutil.which("cc") else set()), "built where they can be"
    assert {"pcr_exp/py.typed", "pcr_exp/records/FORMAT.md"} < set(names)


@pytest.mark.slow
def test_the_demo_runs_at_its_smoke_size_away_from_the_checkout(scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "pcr-exp", "demo", "runner=smoke", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    out = tmp_path / "outputs/smoke/demo"
    assert (out / "figures/summary.csv").is_file() and list((out / "figures").glob("*.png"))
    manifests = [path.read_text() for path in out.glob("runs/*/manifest.json")]
    assert len(manifests) == 2
    for manifest in manifests:
        assert '"command": "pcr-exp demo runner=smoke"' in manifest
        assert '"git_sha": null' in manifest and '"pcr-exp": "' in manifest, "no commit, but a version"


def test_commands_are_named_as_they_are_typed_there(scripts: Path, tmp_path: Path) -> None:
    helped = run(scripts / "pcr-exp", "train", "--help", cwd=tmp_path)
    assert helped.returncode == 0, helped.stdout
    assert "pcr-exp train dataset=photos scan=group_2" in helped.stdout
    assert "torchrun --nproc-per-node 2 -m pcr_exp train" in helped.stdout
    assert "experiments." not in helped.stdout
    program = "import pcr_exp; pcr_exp.open('nowhere')"
    failed = run(scripts / "python", "-c", program, cwd=tmp_path)
    assert "`pcr-exp prepare`" in failed.stdout and "experiments." not in failed.stdout


def test_doctor_looks_at_the_machine(scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "pcr-exp", "doctor", tmp_path, cwd=tmp_path)
    assert "libturbojpeg" in done.stdout and "Traceback" not in done.stdout
    assert done.returncode == int("MISSING" in done.stdout), done.stdout
