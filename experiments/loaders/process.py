"""A fresh process per loader, so that loaders share no imports, caches or memory.

It is idle between measurements. Requests are lines of JSON on its stdin, and answers are lines of JSON on its
stdout. Whatever libraries print goes to its stderr.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pcr_exp.errors import LoaderError, PcrExpError
from pcr_exp.measuring.throughput.job import Job, Peer
from pcr_exp.measuring.throughput.measure import check, closing, measure, pretend_to_train
from pcr_exp.system.machine import own_cpu_s
from pcr_exp.system.process import end_with_parent


class Arrival(NamedTuple):
    """The arrival of a batch."""

    monotonic_s: float
    """Time of arrival, by the clock that all processes of the host share."""
    num_before: int
    """Images that arrived before this batch."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """Images and CPU seconds of one process until its end time."""

    arrivals: list[Arrival]
    num_images: int
    cpu_s: float
    """CPU seconds of the process and its workers, which have ended. Opening the loader is included."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Consumed:
        """Build the object from the values of `to_json`."""
        return cls(**{**values, "arrivals": [Arrival(*arrival) for arrival in values["arrivals"]]})


def consume(peer: Peer, folder: Path, job: Job, until_s: float) -> Consumed:
    """Take batches at the speed of the job's model until `until_s` of the monotonic clock.

    Raises:
        LoaderError: the epochs ended before `until_s`, or a batch failed `check`.
    """
    cpu_s = own_cpu_s()
    arrivals, num_images = [], 0
    batches = closing(peer.batches(folder, job))
    for images in batches:
        received_s = time.perf_counter()
        arrivals.append(Arrival(time.monotonic(), num_images))
        check(images, job)
        count = int(images.shape[0])
        num_images += count
        if arrivals[-1].monotonic_s >= until_s:
            break
        pretend_to_train(count, job, received_s)
    else:
        raise LoaderError(
            f"{job.loader}: {job.num_epochs} epochs ended before the time that was to be measured was over."
        )
    batches.close()
    return Consumed(arrivals, num_images, own_cpu_s() - cpu_s)


_MODULE = "experiments.loaders.process"
_END_S = 10.0
_LAST_LINES = 5


class LoaderProcess:
    """Context manager for a process that measures one loader and builds its format; ends the process."""

    def __init__(self, name: str, python: str | None = None) -> None:
        """`name` is the loader's, for errors; `python` is the interpreter (default: the current one)."""
        self.name = name
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [python or sys.executable, "-m", _MODULE, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            process_group=0,  # contains the loader's own workers, which end with it
        )

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to `{"do": "measure" | "bound" | "consume" | "build", ...}`; see `answer`.

        Raises:
            LoaderError: the loader failed, or its process died.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it died, so its stdout has ended too
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise LoaderError(
                f"the process of {self.name} died with status {status}. Its last words: {self._last_words()}"
            )
        answered: dict[str, Any] = json.loads(line)
        if "error" in answered:
            raise LoaderError(f"{self.name}: {answered['error']}")
        return answered

    def close(self, *, at_once: bool = False) -> None:
        """Close stdin to end the process. After 10 s, or directly with `at_once`, kill its process group."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # it died before the last request was sent
            self._process.stdin.close()
        try:
            self._process.wait(0 if at_once else _END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> LoaderProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error nobody reads the result. Ctrl-C does not reach the process, in a group of its own.
        self.close(at_once=kind is not None)

    def _last_words(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-_LAST_LINES:]) or "none"


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out a request; return the values of a measurement, bound or consumption, or a build's seconds."""
    # Imported here, in the loader's own process, before anything is timed.
    from experiments.loaders.peers.catalogue import SourceImage, absence, open_format, open_peer

    folder = Path(request["folder"])
    if request["do"] == "build":
        images = [SourceImage(*image) for image in json.loads(Path(request["images"]).read_text())]
        if reason := absence(request["loader"]):
            raise LoaderError(reason)
        build = open_format(request["loader"]).build
        started_s, started_cpu_s = time.perf_counter(), own_cpu_s()
        build(images, folder)
        return {
            "build_s": time.perf_counter() - started_s,
            "build_cpu_s": own_cpu_s() - started_cpu_s,
        }
    job = Job.from_json(request["job"])
    if request["do"] == "consume":
        return consume(open_peer(job.loader), folder, job, request["until_s"]).to_json()
    _confine(job.cores)
    if request["do"] == "bound":
        from experiments.loaders.bound import decode_alone

        return decode_alone(folder, job, request["measure_s"]).to_json()
    return measure(open_peer(job.loader), folder, job, request["epoch_images"]).to_json()


def _confine(cores: int | None) -> None:
    """Confine this process and its children to `cores` cores (None: all)."""
    if cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def main() -> None:
    """Answer requests until stdin or the requesting process ends."""
    end_with_parent(int(sys.argv[1]), lambda: os.killpg(0, signal.SIGKILL))
    # Reserve stdout for answers, so that nothing that libraries print is taken for one.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        try:
            answered = answer(json.loads(line))
        except PcrExpError as error:
            answered = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            answered = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answered) + "\n")


if __name__ == "__main__":
    main()
