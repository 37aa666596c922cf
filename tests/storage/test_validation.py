"""An epoch takes as long under the throttle as on storage that is really slow.

Run as root, on an otherwise idle machine, with
`python -m pytest -m "root and slow" tests/storage/test_validation.py -s`. With
THROTTLE_RESULTS=<folder> in the environment, measurements are written to disk.csv and network.csv there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_records import encode_numbered, square_crops
from storage_cgroup import bytes_charged, disk_of, read_limit
from storage_compare import REPEATS, compare
from storage_netns import shaped_network
from storage_nginx import nginx, requests_served

from pcr_exp.records.index import RecordIndex, parse_index

pytestmark = [pytest.mark.slow, pytest.mark.root]

REPO = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("storage_epoch.py")
NUM_IMAGES = 240
MIB = 2**20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten records of 24 photographs of about 100 kB."""
    rng = np.random.default_rng(0)
    corners = [(left, top) for left, top in (rng.integers(0, 64, 2).tolist() for _ in range(NUM_IMAGES))]
    jpegs = square_crops(corners, 448, quality=96)
    return encode_numbered(jpegs, tmp_path_factory.mktemp("validation"), images_per_record=24, num_workers=2)


@pytest.fixture(scope="module")
def index(folder: Path) -> RecordIndex:
    return parse_index((folder / "pcr" / "index.json").read_bytes(), "index.json")


def read_epochs(spec: dict[str, Any], index: RecordIndex, within: list[str] | None = None) -> float:
    """Return the seconds of epochs in a process of its own, and check that everything was read."""
    command = [*(within or []), sys.executable, str(PROGRAM), json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPO, env=_environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["num_images"] == NUM_IMAGES * spec["epochs"]
    assert told["num_bytes"] == index.epoch_bytes(spec["group"]) * spec["epochs"]
    assert told["kept"] == {}
    return told["seconds"]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPO)}


@pytest.mark.parametrize(("group", "mib_per_s"), [(10, 8), (5, 4), (2, 1), (1, 0.5)])
def test_an_epoch_takes_as_long_as_on_a_disk_that_the_kernel_slows(
    folder: Path, index: RecordIndex, group: int, mib_per_s: float
) -> None:
    disk = disk_of(folder)
    files = [str(folder / "pcr" / record.file) for record in index.records]
    spec = {
        "root": str(folder),
        "folder": "pcr",
        "group": group,
        "epochs": 1,
        "bandwidth_mib_per_s": mib_per_s,
        "latency_ms": 0,
        "drop": files,
    }
    num_bytes = index.epoch_bytes(group)
    with read_limit(disk, round(mib_per_s * MIB)) as limited:
        compare(
            "disk.csv",
            {"bandwidth_mib_per_s": mib_per_s, "group": group},
            lambda: read_epochs(spec | {"throttled": False, "cgroup": str(limited)}, index),
            lambda: read_epochs(spec | {"throttled": True}, index),
            {"bytes_over_bandwidth_s": num_bytes / MIB / mib_per_s},
        )
        charged = bytes_charged(limited, disk) / REPEATS
    print(f"the disk read {charged / num_bytes:.3f} times the bytes asked for")
    assert charged == pytest.approx(num_bytes, rel=0.05), "reading ahead, or a warm page cache"


def test_what_else_the_process_reads_is_not_measured(
    folder: Path, index: RecordIndex, tmp_path: Path
) -> None:
    """Files read by a thread of the same process stand for cold modules and library pages."""
    disk = disk_of(folder)
    besides = [tmp_path / f"{i}.bin" for i in range(4)]
    for path in besides:
        path.write_bytes(os.urandom(MIB))
    spec = {
        "root": str(folder),
        "folder": "pcr",
        "group": 2,
        "epochs": 1,
        "bandwidth_mib_per_s": 1,
        "latency_ms": 0,
        "throttled": False,
        "drop": [*(str(folder / "pcr" / record.file) for record in index.records), *map(str, besides)],
        "besides": [str(path) for path in besides],
    }
    num_bytes = index.epoch_bytes(2)
    with read_limit(disk, MIB) as limited:
        seconds = read_epochs(spec | {"cgroup": str(limited)}, index)
        charged = bytes_charged(limited, disk)
    assert charged == pytest.approx(num_bytes, rel=0.05)
    # If they were limited like the records, these files would take four seconds.
    assert seconds == pytest.approx(num_bytes / MIB, abs=1.5)


@pytest.mark.netns
@pytest.mark.parametrize(
    ("group", "mib_per_s", "latency_ms", "epochs"),
    [(10, 8, 20, 3), (5, 4, 50, 2), (2, 2, 50, 2), (1, 1, 100, 3)],
)
def test_an_epoch_takes_as_long_as_over_a_network_that_tc_slows(
    folder: Path,
    index: RecordIndex,
    tmp_path: Path,
    group: int,
    mib_per_s: float,
    latency_ms: float,
    epochs: int,
) -> None:
    """Enough epochs run to take seconds, since opening connections and slow start add 0.1 s once."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'pcr-exp[remote]'")
    spec = {
        "folder": "pcr",
        "group": group,
        "epochs": epochs,
        "bandwidth_mib_per_s": mib_per_s,
        "latency_ms": latency_ms,
    }
    workplace = tmp_path / "nginx"
    with (
        shaped_network(mib_per_s * MIB, latency_ms / 1e3) as network,
        nginx(network, folder, workplace) as url,
    ):
        over_http = spec | {"root": url, "throttled": False}
        compare(
            "network.csv",
            {"bandwidth_mib_per_s": mib_per_s, "latency_ms": latency_ms, "group": group, "epochs": epochs},
            lambda: read_epochs(over_http, index, network.within(network.client)),
            lambda: read_epochs(spec | {"root": str(folder), "throttled": True}, index),
            {"bytes_over_bandwidth_s": index.epoch_bytes(group) * epochs / MIB / mib_per_s},
        )
    wanted = [
        f'GET 206 "bytes=0-{record.group_ends[group - 1] - 1}" /pcr/{record.file}' for record in index.records
    ]
    served = [line for line in requests_served(workplace) if "index.json" not in line]
    assert sorted(served) == sorted(wanted * epochs * REPEATS), "one request of exactly its bytes a record"
