"""Training from a faulty web server: transient faults are counted, lasting faults are reported."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_http_server import RangeServer, range_server

from pcr_exp.errors import PcrExpError
from pcr_exp.runs.rows import Row, deterministic_part, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.storage import objects

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'pcr-exp[remote]'")
pytest.importorskip("tenacity", reason="tenacity is not installed: pip install 'pcr-exp[remote]'")

from pcr_exp.storage import retry

pytestmark = pytest.mark.program

PASSING: list[dict[str, Any]] = [
    *({"resets": True}, {"resets_in_body": True}, {"cut_short": True}, {"stall_s": 0.5}, {"silent_s": 0.5}),
    *({"status": status} for status in (429, 500, 503)),
]
LASTING: dict[str, tuple[dict[str, Any], str]] = {
    "changed object": ({"revision": 1}, r"was replaced while it was in use: its ETag is"),
    "missing object": ({"status": 404}, r"does not exist, but the index next to it lists it"),
    "refused": ({"status": 403}, r"the server refuses access \(403"),
    "always gone": ({"status": 503}, r"503.*It was tried 7 times"),
}
TRAINING_RECORDS = "/train/pcr/record"
BEFORE: list[dict[str, Any]] = [{}] * (4 + 4 + 4)
"""Before training, each of the four records is read three times: its header, images for the facts of the
dataset, and images for the quality measurement."""


@pytest.fixture
def server(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.01)
    monkeypatch.setattr(objects, "SILENCE_TIMEOUT_S", 0.2)
    with range_server(prepared / "records") as running:
        running.only = TRAINING_RECORDS
        running.num_bad = 0
        yield running


@pytest.fixture
def train(configure: Any, server: RangeServer) -> Callable[..., list[Row]]:
    def rows(**changes: Any) -> list[Row]:
        config = configure(records__root=server.url, records__auto_prepare=False, **changes)
        return read_rows(run_training(config, progress=False).folder / "rows.jsonl")

    return rows


def test_what_passes_changes_nothing_and_is_counted(
    train: Callable[..., list[Row]], server: RangeServer, tmp_path: Path
) -> None:
    undisturbed = train(runs_root=str(tmp_path / "undisturbed"))
    assert (undisturbed[-1]["num_requests"], undisturbed[-1]["num_retries"]) == (8, 0), "4 records, twice"
    server.requests.clear()
    # Each fault is followed by a success; otherwise one read might meet them all and give up.
    server.script = BEFORE + [how for fault in PASSING for how in (fault, {})]
    disturbed = train()
    assert deterministic_part(disturbed) == deterministic_part(undisturbed)
    assert not any(server.script)
    asked = [path for method, path, _ in server.requests if method == "GET" and TRAINING_RECORDS in path]
    assert disturbed[-1]["num_retries"] == len(PASSING)
    assert disturbed[-1]["num_requests"] == len(asked) - len(BEFORE) == 8 + len(PASSING)
    assert disturbed[-1]["bytes_read"] == undisturbed[-1]["bytes_read"]


def test_a_server_that_is_gone_for_a_while_is_waited_for(
    train: Callable[..., list[Row]], server: RangeServer
) -> None:
    """All four readers find the server unavailable, some of them several times."""
    server.script = BEFORE + [{"resets": True}] * 10
    assert train()[-1]["num_retries"] == 10
    pauses_s = sum(0.5 * 2**attempt for attempt in range(retry.NUM_ATTEMPTS - 1))
    assert pauses_s > 20, "what a reader waits at least, with the pauses that users have"


@pytest.mark.parametrize("fault", LASTING)
def test_what_lasts_ends_the_run_and_is_told(
    train: Callable[..., list[Row]], server: RangeServer, fault: str
) -> None:
    how, words = LASTING[fault]
    if fault == "changed object":  # each record is read once per epoch, and changes in the second
        server.script = BEFORE + [{}] * 4 + [how] * 4
    else:
        server.num_bad = None
        for name, value in how.items():
            setattr(server, name, value)
    with pytest.raises(PcrExpError, match=words):
        train()
    asked = sum(TRAINING_RECORDS in path for _, path, _ in server.requests)
    # The sizes of the four records are requested first, for training and for inspection.
    num_reads = 28 if fault == "always gone" else len(BEFORE) + 2 * 4
    assert asked <= num_reads + 8, "no storm of retries"


def test_a_server_without_a_name_ends_the_run_at_once(configure: Any) -> None:
    config = configure(records__root="http://nowhere.invalid/records", records__auto_prepare=False)
    with pytest.raises(PcrExpError, match=r"its server name does not resolve \(DNS\)"):
        run_training(config, progress=False)
