"""Commands of `pcr-exp` (or `python -m pcr_exp`): tools for records and this machine, and all runners.

Some of them:

    pcr-exp inspect data/records/pets-1a2b3c4d/train            # what is in them
    pcr-exp verify s3://bucket/pets/train                       # whether all is there, and as it was written
    pcr-exp extract data/records/pets-1a2b3c4d/train 17 --group 2 -o cat.jpg
    pcr-exp doctor                                              # libraries, limits, disk
    pcr-exp train --help                                        # a runner says itself what it takes
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from pcr_exp.errors import PcrExpError
from pcr_exp.places import COMMAND
from pcr_exp.system.lazy import LazyFunction

TOOLS = {
    "inspect": "show what records contain",
    "verify": "check that all files are whole; else name them, with status 1",
    "extract": "write one image as a JPEG file, at any scan group",
    "convert": "convert PNG and WebP images to JPEG files, and report the loss",
    "doctor": "show this machine's libraries, limits and speed, and what is missing",
}
"""Commands for records and this machine, from the module `records`, with descriptions."""
RUNNERS = {
    "prepare": "make records from JPEG files; --check compares them",
    "tolerance": "find out which scan group a task tolerates, before any training",
    "train": "start one training run, or a sweep with -m",
    "sweep": "show the state of a sweep's jobs, wherever they run",
    "evaluate": "measure what trained networks lose at scan groups and decode modes",
    "explore": "make a page: images at every scan group, the task, the storage",
    "quality": "measure MS-SSIM, SSIM and bytes per scan group",
    "throughput": "compare the throughput of scan levels, or predict it for a cluster",
    "figures": "draw figures and tables of runs and measurements on disk",
    "demo": "run all steps on embedded images, in minutes on two CPU cores",
}
"""Commands that a checkout also has as `experiments.<name>`, with descriptions.

Each is a module of this package. Its function of the same name takes the command's settings, and `plan`
describes what it would do. Those in WITH_OPTIONS have a `main` that parses options.
"""
WITH_OPTIONS = ("sweep", "explore")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return 1 if something is damaged or missing, and 2 if there is no such command."""
    from pcr_exp.system.process import leaving_readers

    with leaving_readers():
        return _main(sys.argv[1:] if arguments is None else list(arguments))


def _main(given: list[str]) -> int:
    name = given[0] if given else "--help"
    if name in ("-h", "--help"):
        print(listing())
        return 0
    if name not in RUNNERS | TOOLS:
        print(_unknown(name), file=sys.stderr)
        return 2
    try:
        if name in RUNNERS:
            return start_runner(name, given[1:])
        from pcr_exp.cli.records import command_parser

        options = command_parser().parse_args(given)
        status: int = options.run(options)
    except PcrExpError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # of `extract -o -`: the reader of the bytes has closed the pipe
        return 0
    return status


def listing() -> str:
    """Return the usage and every command with its description, one per line."""
    lines = [f"  {name:18}{about}" for name, about in (TOOLS | RUNNERS).items()]
    usage = f"usage: {COMMAND} <command> ...    ({COMMAND} <command> --help: its arguments)"
    return "\n".join([usage, "", *lines])


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, RUNNERS | TOOLS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"wanted one of {', '.join(TOOLS | RUNNERS)}."
    return f"{COMMAND} {name}: there is no such command; {hint}"


def start_runner(name: str, arguments: Sequence[str]) -> int:
    """Run a runner as `python -m experiments.<name> <arguments>` does. Most of them exit the process."""
    sys.argv = [f"{COMMAND} {name}", *arguments]
    start(name)
    return 0


def start(name: str) -> None:
    """Run a runner with the command line of this process. Its module is imported when a job begins."""
    if name in WITH_OPTIONS:
        import_module(f"pcr_exp.cli.{name}").main()
        return None
    from pcr_exp.cli.launch import launch

    module = f"pcr_exp.cli.{name}"
    return launch(LazyFunction(module, name), name, schemas()[name], LazyFunction(module, "plan"))


def schemas() -> dict[str, type]:
    """Return the settings class of each runner that has one, by name."""
    from pcr_exp.config.commands import DemoConfig, FiguresConfig, PrepareConfig, TrainConfig
    from pcr_exp.config.measuring import EvaluateConfig, QualityConfig, ToleranceConfig
    from pcr_exp.config.throughput import ThroughputConfig

    return {
        "prepare": PrepareConfig,
        "tolerance": ToleranceConfig,
        "train": TrainConfig,
        "evaluate": EvaluateConfig,
        "quality": QualityConfig,
        "throughput": ThroughputConfig,
        "figures": FiguresConfig,
        "demo": DemoConfig,
    }
