"""R follows from measured times: which stage is upstream, and which of two overlapping stages counts."""

import time

import pytest

from pcr_exp.config.components import schemas
from pcr_exp.loading.echo.stage import stage_columns
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.stream import LoaderStats

# 200 fresh images of 50 bytes were each trained on twice. With read-ahead, 20,000 bytes were read in 8 s.
COUNTERS = {"samples_seen": 200, "samples_trained": 400, "record_bytes": 10_000, "train_s": 4.0}
READ_S, TRAIN_S = 8.0 / 20_000 * 50, 0.01


def columns(name: str, decode_s: float, num_workers: int, num_decoded: int = 100) -> tuple[float, ...]:
    measured = stage_columns(
        schemas("echo")[name](),
        LoaderStats(8.0, decode_s, num_decoded),
        num_workers=num_workers,
        bytes_read=20_000,
        counters=COUNTERS,
    )
    assert list(measured) == ["upstream_s_per_sample", "downstream_s_per_sample", "upstream_ratio"]
    return tuple(measured.values())  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("name", "decode_s", "num_workers", "upstream_s", "downstream_s"),
    [
        ("none", 0.5, 1, READ_S, TRAIN_S),
        ("example_before", 0.5, 1, READ_S, TRAIN_S),
        ("example_before", 3.0, 1, READ_S, 0.03),
        ("example_before", 3.0, 2, READ_S, 0.015),
        ("example_before", 3.0, 0, READ_S, TRAIN_S + 0.03),
        ("example_after", 0.5, 1, READ_S, TRAIN_S),
        ("example_after", 6.0, 2, 0.03, TRAIN_S),
        ("batch", 6.0, 1, 0.06, TRAIN_S),
    ],
)
def test_the_slower_of_overlapping_stages_counts(
    name: str, decode_s: float, num_workers: int, upstream_s: float, downstream_s: float
) -> None:
    assert columns(name, decode_s, num_workers) == pytest.approx(
        (upstream_s, downstream_s, upstream_s / downstream_s)
    )


@pytest.mark.parametrize("name", ["none", "example_before", "example_after", "batch"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_before_anything_is_measured_there_is_no_ratio(name: str, num_workers: int) -> None:
    counters = dict.fromkeys(COUNTERS, 0)
    measured = stage_columns(
        schemas("echo")[name](), LoaderStats(), num_workers=num_workers, bytes_read=0, counters=counters
    )
    assert set(measured.values()) == {None}


def test_efforts_add_up() -> None:
    assert LoaderStats(1, 2, 3) + LoaderStats(10, 20, 30) == LoaderStats(11, 22, 33)


def test_reading_is_timed_while_a_read_is_in_flight() -> None:
    """Two threads do four reads of 0.1 s. The pause between them, when nothing is wanted, does not count."""

    def read(request: int) -> int:
        time.sleep(0.1)
        return request

    fetcher = Fetcher(read, iter(range(4)), num_threads=2, ahead=0)
    assert fetcher.busy_s == 0
    fetcher.start()
    started_s = time.monotonic()
    assert fetcher.take(2) == [0, 1]
    time.sleep(0.3)
    assert fetcher.take(2) == [2, 3]
    passed_s = time.monotonic() - started_s
    fetcher.close()
    assert 0.2 <= fetcher.busy_s <= passed_s - 0.3
