"""How long commands take to say how they are used.

`python -m experiments.loaders.speed.help_time` starts `pcr-exp <command> --help` for each command in turn,
several times, prints seconds of the clock and of the CPU, lines, and whether torch or matplotlib came in, and
keeps them as outputs/help_time.csv.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import product

from experiments.loaders.speed.study import Row, Study

COMMANDS = ("train", "evaluate", "figures", "sweep", "inspect")
_PROGRAM = """
import atexit, sys
atexit.register(lambda: print(*sorted({"torch", "matplotlib"} & set(sys.modules)), file=sys.stderr))
from pcr_exp.cli import main
sys.exit(main(sys.argv[1:]))
"""


def measure(command: str, repeat: int) -> Row:
    """One start: `wall_s`, `cpu_s`, `lines`, and `imports`, the heavy ones among them."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, command, "--help"], capture_output=True, text=True, check=True
    )
    wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    imports = done.stderr.strip() or "none"
    case = {"command": command, "lines": len(done.stdout.splitlines()), "imports": imports}
    return {**case, "repeat": repeat, "wall_s": wall_s, "cpu_s": cpu_s}


STUDY = Study(__doc__, "outputs/help_time.csv", images=False)
STUDY.add("--commands", nargs="+", default=COMMANDS)


def rows(given: Namespace) -> Iterator[Row]:
    """The commands by turns."""
    for repeat, command in product(range(given.repeats), given.commands):
        yield measure(command, repeat)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    STUDY.run(rows, arguments)


if __name__ == "__main__":
    main()
