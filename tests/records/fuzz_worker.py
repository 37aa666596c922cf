"""`fuzz_worker.py FIRST COUNT STEP FILE` runs COUNT inputs with the numbers FIRST, FIRST + STEP, ...

Prints each finding and, last, how many inputs were refused and accepted. FILE holds the number of the
current input, because a crash in native code leaves no other trace.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random

BOUND_BYTES = 256 * 2**20
"""Memory by which the process may grow: 24 bytes per pixel of MAX_PIXELS, 64 per byte of JSON, and slack."""
MOST_S = 5.0
MOST_FINDINGS = 10


def main(first: int, count: int, step: int, current: Path) -> int:
    """Run the inputs, and return the number of findings."""
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    from fuzz_targets import TARGETS, folder

    warnings.simplefilter("ignore")
    folder()
    for target in TARGETS:  # loads everything that is loaded only once
        target(Random(0))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + BOUND_BYTES, used + BOUND_BYTES))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: Counter[str] = Counter()
    num_findings, slowest_s = 0, 0.0
    with current.open("wb", buffering=0) as file:
        for seed in range(first, first + count * step, step):
            os.pwrite(file.fileno(), f"{seed:12d}".encode(), 0)
            target = TARGETS[seed % len(TARGETS)]
            started = time.process_time()
            try:
                outcomes[f"{target.__name__} {target(Random(seed))}"] += 1
            except BaseException:
                num_findings += 1
                print(f"input {seed} ({target.__name__}):\n{traceback.format_exc()}", flush=True)
            took_s = time.process_time() - started
            slowest_s = max(slowest_s, took_s)
            if took_s > MOST_S:
                num_findings += 1
                print(f"input {seed} ({target.__name__}) took {took_s:.1f} s", flush=True)
            if num_findings >= MOST_FINDINGS:
                break
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    told = {"outcomes": outcomes, "slowest_s": round(slowest_s, 2), "grown_mib": grown_kib // 1024}
    print(json.dumps(told, sort_keys=True), flush=True)
    return num_findings


if __name__ == "__main__":
    sys.exit(min(100, main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))))
