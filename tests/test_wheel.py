"""The package as users install it: a wheel, in an environment outside the checkout."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from hostile_files import framed, records
from jpeg_photos import KINDS, groups_of
from wheels import MACHINES, copy_sources, newest_glibc

from pcr_exp.images.jpeg import join_pieces

pytestmark = pytest.mark.program

REPO = Path(__file__).parents[1]
LIBRARIES = ("images/_decoder", "storage/_many_reads")


def run(*command: str | Path, cwd: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a command that does not see the checkout; stderr is added to stdout."""
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
    """Copy the sources to `source`, and build their wheel."""
    copy_sources(source)
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
    """Return the bin folder of a fresh environment with the wheel; dependencies are those installed here."""
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
    libraries = {f"pcr_exp/{name}.abi3.so" for name in LIBRARIES}
    assert built == (libraries if shutil.which("cc") else set()), "built where they can be"
    data = ["py.typed", "records/FORMAT.md", "analysis/explore.js", "analysis/explore.html.jinja"]
    assert {f"pcr_exp/{name}" for name in data} < set(names)


CROSS = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
needs_arm64 = pytest.mark.skipif(
    None in CROSS or platform.machine() != "x86_64",
    reason="wants Debian's gcc-aarch64-linux-gnu and qemu-user, on x86-64",
)


def photographs() -> list[bytes]:
    scans = [join_pieces(groups_of("420")[:group]) for group in range(1, 11)]
    return [*(KINDS[kind] for kind in ("444", "422", "420", "grey")), *scans, *records(0), *records(5)]


def decoded_by(wheel: Path, compiler: str, folder: Path, *emulator: str) -> list[str]:
    """Return the code path of the wheel's decoder, then a checksum of each photograph at each size."""
    with zipfile.ZipFile(wheel) as content:
        libraries = [content.extract(f"pcr_exp/{name}.abi3.so", folder) for name in LIBRARIES]
    program = folder / "loaded"
    subprocess.run([compiler, REPO / "tests/images/decoder_loaded.c", "-ldl", "-o", program], check=True)
    done = subprocess.run(
        [*emulator, program, *libraries], input=framed(photographs()), capture_output=True, check=True
    )
    return done.stdout.decode().splitlines()


@needs_arm64
def test_machines_have_wheels_that_show_the_same(tmp_path: Path) -> None:
    """The arm64 wheel is cross-compiled, and its decoder runs in an emulator."""
    done = run(sys.executable, REPO / ".ci/wheels.py", "--out", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    here, arm64 = (next(tmp_path.glob(f"*-cp311-abi3-manylinux_2_*_{name}.whl")) for name in MACHINES)
    emulated = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
    wanted = decoded_by(here, "cc", tmp_path / "here")
    found = decoded_by(arm64, "aarch64-linux-gnu-gcc", tmp_path / "arm64", *emulated)
    assert found[0] == "neon, plain"
    assert len(found) == 1 + 4 * len(photographs()) and found[1:] == wanted[1:]


@pytest.mark.parametrize(
    ("environment", "what"),
    [({"PATH": "/nowhere"}, "no C compiler for "), ({"CFLAGS": "--no-such-option"}, "C was not compiled")],
)
def test_a_wheel_without_its_libraries_is_none(
    environment: dict[str, str], what: str, tmp_path: Path
) -> None:
    command = (sys.executable, REPO / ".ci/wheels.py", platform.machine(), "--out", tmp_path / "dist")
    done = run(*command, cwd=tmp_path, **environment)
    assert done.returncode == 1 and what in done.stdout, done.stdout
    assert not (tmp_path / "dist").exists()


@pytest.mark.skipif(not shutil.which("readelf"), reason="wants binutils")
def test_nor_is_one_for_another_machine(wheel: Path) -> None:
    other = next(name for name in MACHINES if name != platform.machine())
    with pytest.raises(RuntimeError, match=f"_decoder.abi3.so is not for {other}"):
        newest_glibc(wheel, other)


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


def test_it_lists_the_commands_of_the_library_and_none_of_the_papers(scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "pcr-exp", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    listed = [line.split()[0] for line in done.stdout.splitlines()[2:]]
    looking = ["inspect", "verify", "extract", "convert", "doctor"]
    runners = ["prepare", "tolerance", "train", "sweep", "evaluate", "explore", "quality", "throughput"]
    assert listed == [*looking, *runners, "figures", "demo"]


def test_doctor_looks_at_the_machine(scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "pcr-exp", "doctor", tmp_path, cwd=tmp_path)
    assert "libturbojpeg" in done.stdout and "Traceback" not in done.stdout
    assert done.returncode == int("MISSING" in done.stdout), done.stdout
