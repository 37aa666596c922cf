"""Time the same work in turns on something real and under the throttle."""

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

REPEATS = 3


def compare(
    file: str,
    case: dict[str, Any],
    real: Callable[[], float],
    ours: Callable[[], float],
    expected: dict[str, float],
) -> None:
    """Alternate the two and compare the medians. Print all times, since the numbers are the point.

    With THROTTLE_RESULTS=<folder> in the environment, `file` there gets a row per repeat. `expected` holds
    seconds from arithmetic alone, for readers of the table.
    """
    rows = []
    for repeat in range(REPEATS):
        times = {"real_s": real(), "throttle_s": ours()}
        ratio = times["throttle_s"] / times["real_s"]
        rows.append({**case, **expected, "repeat": repeat, **times, "ratio": ratio})
    frame = pd.DataFrame(rows)
    print("\n" + frame.to_string(index=False))
    if folder := os.environ.get("THROTTLE_RESULTS"):
        path = Path(folder, file)
        frame.to_csv(path, mode="a", header=not path.exists(), index=False)
    ratio = statistics.median(frame["throttle_s"]) / statistics.median(frame["real_s"])
    assert ratio == pytest.approx(1.0, abs=0.05)
