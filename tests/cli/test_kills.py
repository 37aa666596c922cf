"""Runners that are killed or interrupted at any moment leave nothing behind, and the same command continues.

`PCR_EXP_NUM_ENDINGS=50 python -m pytest -m slow tests/cli/test_kills.py` ends each runner 50 times.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_processes import Starter, locked_files, processes_of, shared_memory, wait_until_ended

from pcr_exp.runs.rows import deterministic_part, read_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

NUM_ENDINGS = int(os.environ.get("PCR_EXP_NUM_ENDINGS", "5"))
CONTINUED_EVERY = 5
"""After one in this many endings, the command runs again and must produce the right result."""
ENDS_WITHIN_S = 30.0

DATA = (
    *("dataset.num_train=48", "dataset.num_val=16", "dataset.size_px=64", "dataset.images_per_record=8"),
    *("records.num_workers=2",),
)
TRAINING = (
    *DATA,
    *("training=debug", "training.epochs=3", "training.num_threads=1", "training.device=cpu"),
    *("training.checkpoint_every_steps=2", "loader.num_workers=2", "storage.bandwidth_mib_per_s=1"),
)


class Program:
    """Command that runs in a new folder each time, and the function that reads its result there."""

    def __init__(
        self, module: str, arguments: Callable[[Path], list[str]], result: Callable[[Path], Any]
    ) -> None:
        self.module = module
        self.arguments = arguments
        self.result = result


def records_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "records").rglob("*.pcr"))
    }


def rows_in(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each run without the values that depend on the clock."""
    return {
        path.parent.name: deterministic_part(read_rows(path))
        for path in sorted((folder / "runs").glob("*/rows.jsonl"))
    }


def training_in(shared: Path, folder: Path) -> list[str]:
    places = (f"dataset.root={shared}/photos", f"records.root={shared}/records", f"runs_root={folder}/runs")
    return [*TRAINING, *places]


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    with Starter() as starter:
        yield starter


@pytest.fixture(scope="module")
def shared(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the photographs and records that trainings read."""
    folder = tmp_path_factory.mktemp("shared")
    run(starter, "experiments.prepare", prepare_arguments(folder), folder)
    return folder


def prepare_arguments(folder: Path) -> list[str]:
    return [*DATA, f"dataset.root={folder}/photos", f"records.root={folder}/records"]


@pytest.fixture(scope="module")
def programs(shared: Path) -> dict[str, Program]:
    def sweep(folder: Path) -> list[str]:
        return ["-m", "seed=0,1", *training_in(shared, folder)]

    return {
        "prepare": Program("experiments.prepare", prepare_arguments, records_in),
        "train": Program("experiments.train", lambda folder: training_in(shared, folder), rows_in),
        "sweep": Program("experiments.train", sweep, rows_in),
    }


def run(starter: Starter, module: str, arguments: list[str], folder: Path) -> int:
    """Run a command to its end and return its pid; its exit status must be 0."""
    pid = starter.start(module, arguments, folder / "output", folder)
    status = starter.end(pid)
    assert status == 0, (folder / "output").read_text()
    return pid


def throttles_of(*pids: int) -> set[str]:
    """Return the throttles' files in shared memory that these processes made."""
    prefixes = tuple(f"pcr-exp-throttle-{pid}-" for pid in pids)
    return {name for name in shared_memory() if name.startswith(prefixes)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
@pytest.mark.parametrize("name", ["prepare", "train", "sweep"])
def test_nothing_is_left_and_the_same_command_continues(
    name: str,
    number: int,
    starter: Starter,
    programs: dict[str, Program],
    tmp_path: Path,
) -> None:
    program = programs[name]
    whole = tmp_path / "whole"
    whole.mkdir()
    started_s = time.monotonic()
    run(starter, program.module, program.arguments(whole), whole)
    whole_s = time.monotonic() - started_s
    wanted = program.result(whole)
    assert wanted

    ends = (-signal.SIGKILL, 0) if number == signal.SIGKILL else (130, -signal.SIGINT, 0)
    rng = random.Random(0)
    statuses: dict[int, int] = {}
    longest_s = 0.0
    for ending in range(NUM_ENDINGS):
        folder = tmp_path / str(ending)
        folder.mkdir()
        output = folder / "output"
        pid = starter.start(program.module, program.arguments(folder), output, folder)
        time.sleep(rng.uniform(0, whole_s))
        sent_s = time.monotonic()
        send(pid, number, to_all=ending % 2 == 0)
        alive = wait_until_ended(pid, ENDS_WITHIN_S)
        longest_s = max(longest_s, time.monotonic() - sent_s)
        for number_of_end in (signal.SIGUSR1, signal.SIGKILL) if alive else ():  # print the stacks, then kill
            for left in alive:
                os.kill(left, number_of_end)
            time.sleep(1)
        told = f"ending {ending}:\n{output.read_text() if output.exists() else ''}"
        assert alive == {}, f"still there after {ENDS_WITHIN_S:g} s: {alive}; {told}"
        status = starter.end(pid)
        statuses[status] = statuses.get(status, 0) + 1
        told = f"status {status}, {told}"
        assert status in ends, told
        assert locked_files([folder]) == [], told
        if number == signal.SIGINT:
            assert throttles_of(pid) == set(), told
        if ending % CONTINUED_EVERY == 0:
            again = run(starter, program.module, program.arguments(folder), folder)
            assert program.result(folder) == wanted, told
            assert list(folder.rglob("*.tmp")) == [], told
            assert throttles_of(pid, again) == set(), told
            assert processes_of(again) == {}, told
    print(f"{name}: {NUM_ENDINGS} endings, exit statuses {statuses}, the longest took {longest_s:.1f} s")


def send(pid: int, number: int, *, to_all: bool) -> None:
    """Send SIGKILL to the started process, as the system does when memory runs out, or interrupt it.

    `to_all` interrupts its children as well, as Ctrl-C in a terminal does. Otherwise `kill -INT` is imitated.
    """
    try:
        if to_all and number == signal.SIGINT:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has already ended by itself
