"""What the ways to write a script cost: a library in this process, a program per image, and arrays."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pcr_exp.config.scan_scripts import DEFAULT, ScanScript
from pcr_exp.images.transcode import Jpegtran, JpegtranOfScript, find_transcoder

Write = Callable[[bytes], object]


def _jpeglib(jpeg: bytes) -> None:
    """Coefficients to arrays and back, as a baseline file: what jpeglib takes before any scan list."""
    import jpeglib  # of the tests, and of nothing else

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        source, out = Path(folder, "in.jpg"), Path(folder, "out.jpg")
        source.write_bytes(jpeg)
        jpeglib.read_dct(str(source)).write_dct(str(out))
        out.read_bytes()


def writers(script: ScanScript) -> dict[tuple[str, str], Write]:
    """By (way, script), what writes a file."""
    program = shutil.which("jpegtran")
    found: dict[tuple[str, str], Write] = {("libturbojpeg, in process", "default"): find_transcoder()}
    if program is not None:
        found["jpegtran, a process each", "default"] = Jpegtran(program)
        found["jpegtran -scans, a process each", "default"] = JpegtranOfScript(program, DEFAULT)
        found["jpegtran -scans, a process each", "spectral"] = JpegtranOfScript(program, script)
    found["jpeglib, arrays of coefficients", "none (baseline)"] = partial(_jpeglib)
    return found


def rows(script: ScanScript, files: Sequence[bytes], turns: int) -> Iterator[dict[str, Any]]:
    """CPU and wall milliseconds per image of each way, with what its processes take; the ways by turns."""
    ways = writers(script)
    for write in ways.values():
        write(files[0])
    for turn in range(turns):
        for (way, name), write in ways.items():
            cpu_s, started_s = _cpu_s(), time.perf_counter()
            for file in files:
                write(file)
            yield {
                "way": way,
                "script": name,
                "repeat": turn,
                "cpu_ms": 1e3 * (_cpu_s() - cpu_s) / len(files),
                "wall_ms": 1e3 * (time.perf_counter() - started_s) / len(files),
            }


def _cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
