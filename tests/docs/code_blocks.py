"""Code blocks of Markdown pages, and checks of their commands."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from composing import SCHEMAS, compose

from pcr_exp.cli.records import command_parser

REPO = Path(__file__).parents[2]
_BLOCK = re.compile(r"(?:^<!-- (run|composed)(?:: (.+?))? -->\n)?^```(bash|python)\n(.*?)^```", re.M | re.S)
_RUNNER = r"(?:pcr-exp|python -m(?= experiments)|(?:python|torchrun [^=]*?) -m pcr_exp)"
_OURS = re.compile(rf"{_RUNNER} ([\w.]+)(.*)")
_OF_SWEEPS = {"status", "wait", "table", "stop", "wandb"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    language: str
    code: str
    mark: str
    """`run`: a test runs it; `composed`: its commands are checked; empty: it has no mark."""

    @property
    def commands(self) -> list[str]:
        """Its commands, with continued lines joined and without comments."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [line.partition("  #")[0].strip() for line in lines if line and not line.startswith("#")]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of bash and Python on a page, in order."""
    return [Block(language, code, mark) for mark, _, language, code in _BLOCK.findall(page.read_text())]


def require_command(command: str) -> None:
    """Fail if a command line names a command, setting, option, target or file that does not exist."""
    words = shlex.split(command)
    if words[0] == "make":
        assert all(re.search(rf"^{one}\b.*:", (REPO / "Makefile").read_text(), re.M) for one in words[1:])
    elif words[0].endswith("python") and words[1:3] == ["-m", "pytest"]:
        files = [word for word in words[3:] if word.startswith("tests/")]
        assert files and all((REPO / file).exists() for file in files), command
    else:
        found = _OURS.match(command)
        assert found, f"{command}: nothing here runs this"
        _require_ours(found[1], shlex.split(found[2]))


def _require_ours(name: str, arguments: list[str]) -> None:
    runner = name.removeprefix("experiments.")
    if runner == "sweep":
        assert arguments[0] in _OF_SWEEPS
    elif runner in SCHEMAS:
        # Hydra's own overrides are skipped, and of a sweep's values the first is enough.
        own = [one for one in arguments if not one.startswith(("-", "hydra", "components="))]
        assert compose(runner, *(re.sub(r"^([^=]+=[^,\[{]*),.*$", r"\1", one) for one in own)) is not None
    elif name != runner:
        assert find_spec(name) is not None  # a program with options of its own
    else:
        assert callable(command_parser().parse_args([name, *arguments]).run)


def run_block(block: Block, folder: Path) -> str:
    """Run a block, and return its stdout and stderr as one text; `pcr-exp` is this checkout's."""
    command = folder.parent / "bin" / "pcr-exp"
    command.parent.mkdir(exist_ok=True)
    # As pip writes it: Python searches the script's folder, and not the working folder as with `python -m`.
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom pcr_exp.cli import main\nsys.exit(main())\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    paths = {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPO),
    }
    started = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
    done = subprocess.run(
        [*started, block.code],
        cwd=folder,
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block.code}\n{done.stdout}"
    return done.stdout
