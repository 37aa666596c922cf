"""Wheels for Linux: `make wheels` builds those for x86-64 and arm64, each by a compiler that is here.

Libraries in C are all that differs between machines, and call no Python: a cross compiler makes arm64's (on
Debian `apt install gcc-aarch64-linux-gnu`), and one wheel is for all versions from 3.11 on. Its tag names the
oldest glibc that has all that its libraries ask for.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parents[1]
OF_A_BUILD = (
    "pcr_exp",
    "hydra_plugins",
    "configs",
    "experiments",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}
"""What `readelf` calls each."""
OLDEST_GLIBC = (2, 17)
"""That of manylinux2014, and the first on arm64."""


def compiler_of(machine: str) -> str | None:
    """The C compiler for it that is here."""
    names = ("cc", "gcc") if machine == platform.machine() else (f"{machine}-linux-gnu-gcc",)
    return next((name for name in names if shutil.which(name)), None)


def build(machine: str, out: Path) -> Path:
    """A wheel into folder `out`.

    Raises:
        RuntimeError: there is no compiler, or the build fails or gives libraries for another machine.
    """
    compiler = compiler_of(machine)
    if compiler is None:
        raise RuntimeError(
            f"no C compiler for {machine}: apt install gcc-{machine.replace('_', '-')}-linux-gnu"
        )
    environment = {
        **os.environ, "CC": compiler, "LDSHARED": f"{compiler} -shared",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        copy_sources(source)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
        run(*pip, "--wheel-dir", temporary, source, env=environment)
        (wheel,) = Path(temporary).glob("*.whl")
        major, minor = newest_glibc(wheel, machine)
        tag = f"manylinux_{major}_{minor}_{machine}"
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, wheel)
        (wheel,) = Path(temporary).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, out / wheel.name))


def copy_sources(to: Path) -> None:
    """Copy the sources: a build leaves folders in its place, and takes what others left."""
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    to.mkdir(parents=True, exist_ok=True)
    for name in OF_A_BUILD:
        if (HERE / name).is_dir():
            shutil.copytree(HERE / name, to / name, ignore=left_out)
        else:
            shutil.copyfile(HERE / name, to / name)


def newest_glibc(wheel: Path, machine: str) -> tuple[int, int]:
    """The version that the wheel's libraries ask for.

    Raises:
        RuntimeError: it lacks a library, which a failed compiler leaves out, or one is for another machine.
    """
    found = [OLDEST_GLIBC]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as content:
        names = [name for name in content.namelist() if name.endswith(".so")]
        if len(names) != 2:
            raise RuntimeError(f"{wheel.name} has the libraries {names}, wanted two: its C was not compiled")
        for name in names:
            said = run("readelf", "--wide", "--file-header", "--version-info", content.extract(name, folder))
            if MACHINES[machine] not in said:
                raise RuntimeError(f"{wheel.name}: {name} is not for {machine}")
            found += [(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", said)]
    return max(found)


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Return the output of a command. Raises RuntimeError with it if the command fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=env, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Both, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("machines", nargs="*", choices=[*MACHINES, []], help="default: all")
    parser.add_argument("--out", type=Path, default=HERE / "dist", help="default: dist/")
    arguments = parser.parse_args()
    try:
        for machine in arguments.machines or MACHINES:
            print(build(machine, arguments.out))
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
