"""Start runners as real processes, and find what they leave behind."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

REPO = Path(__file__).parents[2]
SHARED_MEMORY = Path("/dev/shm")


class Starter:
    """Context manager that starts runners quickly; see `runner_starter`."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "200", "NO_COLOR": "1"}
        environment.pop("WORLD_SIZE", None)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("runner_starter.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        output: Path,
        cwd: Path,
        *,
        errors: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Start `python -m <module> <arguments>` and return its pid, which is also the id of its session.

        `output` receives stdout, and stderr unless `errors` is given. `environment` extends the tests' own.
        """
        request = {"do": "start", "module": module, "arguments": [module, *arguments], "cwd": str(cwd)}
        files = {"output": str(output), "errors": str(errors or output)}
        return self._ask({**request, **files, "environment": dict(environment or {})})

    def end(self, pid: int) -> int:
        """Wait for a started runner and return its exit status, or minus the signal that killed it."""
        return self._ask({"do": "end", "pid": pid})

    def _ask(self, request: dict[str, object]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Starter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process that starts runners."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@functools.cache
def shared_starter() -> Starter:
    """Return the starter that all tests of this process share; it ends with the process."""
    starter = Starter()
    atexit.register(starter.close)
    return starter


def call(runner: str, *arguments: str, cwd: Path = REPO) -> subprocess.CompletedProcess[str]:
    """Run `python -m experiments.<runner> <arguments>` without colours. Kill it after 300 s."""
    starter = shared_starter()
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        module = f"experiments.{runner}"
        pid = starter.start(module, arguments, output, cwd, errors=errors)
        overdue = threading.Timer(300, os.killpg, (pid, signal.SIGKILL))
        overdue.start()
        status = starter.end(pid)
        overdue.cancel()
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.CompletedProcess(command, status, output.read_text(), errors.read_text())


def processes_of(session: int) -> dict[int, str]:
    """Return the names of a session's processes that have not ended, by pid."""
    found = {}
    for process in psutil.process_iter(["name", "status"]):
        with suppress(ProcessLookupError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getsid(process.pid) == session:
                found[process.pid] = process.info["name"]
    return found


def wait_until_ended(session: int, within_s: float) -> dict[int, str]:
    """Wait until a session has ended, and return the processes that are alive after `within_s` seconds."""
    deadline_s = time.monotonic() + within_s
    while (alive := processes_of(session)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return alive


def locked_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files below the folders that some process has locked."""
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    inodes = {int(fields[5].split(":")[2]) for fields in locks if fields[1] != "->"}
    files = [path for folder in folders for path in folder.rglob("*")]
    return [path for path in files if path.is_file() and path.stat().st_ino in inodes]


def shared_memory() -> set[str]:
    """Return the files in /dev/shm (such as torch's) and in this package's folder of the user there."""
    own = SHARED_MEMORY / f"pcr-exp-{os.geteuid()}"
    if not SHARED_MEMORY.is_dir():
        return set()
    inside = own.iterdir() if own.is_dir() else iter([])
    return {str(path) for path in [*SHARED_MEMORY.iterdir(), *inside]} - {str(own)}
