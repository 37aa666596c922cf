"""How long commands take to say how they are used.

`python -m experiments.loaders.speed.help_time` starts `pcr-exp <command> --help` for each command in turn,
several times, and prints seconds of the clock and of the CPU, lines, and whether torch or matplotlib came in.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import pandas as pd

from experiments.loaders.speed.study import to_markdown

COMMANDS = ("train", "evaluate", "figures", "sweep", "inspect")
_PROGRAM = """
import atexit, sys
atexit.register(lambda: print(*sorted({"torch", "matplotlib"} & set(sys.modules)), file=sys.stderr))
from pcr_exp.cli import main
sys.exit(main(sys.argv[1:]))
"""


def measure(command: str) -> dict[str, object]:
    """One start: `wall_s`, `cpu_s`, `lines`, and `imports`, the heavy ones among them."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, command, "--help"], capture_output=True, text=True, check=True
    )
    wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    imports = done.stderr.strip() or "none"
    case = {"command": command, "lines": len(done.stdout.splitlines()), "imports": imports}
    return {**case, "repeat": 0, "wall_s": wall_s, "cpu_s": cpu_s}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every command so many times, by turns, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--commands", nargs="+", default=COMMANDS)
    given = parser.parse_args(arguments)
    rows = [measure(command) | {"repeat": i} for i in range(given.repeats) for command in given.commands]
    print(to_markdown(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
