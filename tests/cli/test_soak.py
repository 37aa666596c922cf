"""Run the soak just long enough to see that it works. The real one is `soak.py --minutes 30`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from soak import Sample, failures, soak
from storage_faulty_proxy import FAULTS


@pytest.mark.slow
def test_rows_are_those_without_faults(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'pcr-exp[remote]'")
    found = soak(tmp_path, minutes=1.0, share=0.05)
    assert [words for words in failures(found) if "memory" not in words] == [], "memory settles later"
    assert found["counts"].keys() >= {"requests", *FAULTS}
    assert found["retries"] > 0


def soaked(**changes: Any) -> dict[str, Any]:
    quarters = [Sample(100.0, 30, 10)] * 4
    return {"statuses": [143, 143], "equal_rows": True, "quarters": {"faults": quarters}} | changes


def test_what_is_wrong_is_said() -> None:
    assert failures(soaked()) == []
    assert failures(soaked(statuses=[143, 1])) == ["exit statuses [143, 1], wanted 143"]
    assert failures(soaked(equal_rows=False)) == ["rows differ from those without faults, or there are none"]
    assert failures(soaked(quarters={"faults": []})) == ["too short: no quarters"]
    grown = [Sample(100.0, 30, 10)] * 3 + [Sample(102.5, 31, 11)]
    assert failures(soaked(quarters={"faults": grown})) == [
        "memory grew from 100.0 to 102.5 MiB",
        "num_descriptors grew: [30, 30, 30, 31]",
        "num_threads grew: [10, 10, 10, 11]",
    ]
