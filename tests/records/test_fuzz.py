"""Inputs of a fixed hostile sequence are accepted or end in our errors, quickly and in little memory.

An input is a number; `python tests/records/fuzz_worker.py NUMBER 1 1 /tmp/current` repeats one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fuzz_targets import TARGETS
from fuzz_worker import BOUND_BYTES, MOST_S


def fuzz(num_inputs: int, folder: Path, num_workers: int = 2) -> Counter[str]:
    """Run the first inputs in processes of their own, and return the number of each outcome."""
    running = []
    for worker in range(num_workers):
        current = folder / f"worker-{worker}"
        command = [sys.executable, str(Path(__file__).with_name("fuzz_worker.py"))]
        command += [str(worker), str(num_inputs // num_workers), str(num_workers), str(current)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append((process, current))
    outcomes: Counter[str] = Counter()
    for process, current in running:
        output, _ = process.communicate()
        assert process.returncode == 0, f"ended with {process.returncode} at {current.read_text()}:\n{output}"
        told = json.loads(output.splitlines()[-1])
        outcomes.update(told["outcomes"])
        assert told["slowest_s"] <= MOST_S
        assert told["grown_mib"] <= BOUND_BYTES // 2**20
        print(told)
    assert sum(outcomes.values()) == num_inputs
    return outcomes


def test_hostile_files_end_in_our_errors(tmp_path: Path) -> None:
    outcomes = fuzz(3_000, tmp_path, num_workers=1)
    for target in TARGETS:  # some are accepted below, so refusals do not come from a constant fault
        assert outcomes[f"{target.__name__} refused"] >= 40
    for name in ("index", "header", "groups", "encoding", "decoding", "notes"):
        assert outcomes[f"{name} accepted"] >= 4


@pytest.mark.slow
def test_hundred_thousand_hostile_files_end_in_our_errors(tmp_path: Path) -> None:
    fuzz(100_000, tmp_path)
