"""A disk that the kernel slows down for the processes of one control group."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_BLKIO = Path("/sys/fs/cgroup/blkio")


def disk_of(path: Path) -> str:
    """Return `major:minor` of the whole disk that holds a file; skip if there is none."""
    device = path.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    entry = Path("/sys/dev/block", name)
    if not entry.exists():
        pytest.skip(f"{path} lies on no block device (device {name}): give pytest a --basetemp on a disk")
    if (entry / "partition").exists():  # limits apply to whole disks
        return (entry.resolve().parent / "dev").read_text().strip()
    return name


@contextmanager
def read_limit(disk: str, bytes_per_s: int) -> Iterator[Path]:
    """Yield the folder of a control group whose disk reads are limited; it must be empty again at the end."""
    if os.geteuid() != 0:
        pytest.skip("not root: the kernel lets only root limit a disk")
    if not (_BLKIO / "blkio.throttle.read_bps_device").exists():
        pytest.skip(f"{_BLKIO} has no read limit: wanted a kernel with blk-throttle and cgroup v1's blkio")
    group = _BLKIO / f"pcr-exp-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "blkio.throttle.read_bps_device").write_text(f"{disk} {bytes_per_s}")
        yield group
    finally:
        group.rmdir()


def bytes_charged(group: Path, disk: str) -> int:
    """Return the bytes that the disk has read for the group's processes."""
    for line in (group / "blkio.throttle.io_service_bytes").read_text().splitlines():
        if line.startswith(f"{disk} Read "):
            return int(line.split()[2])
    return 0
