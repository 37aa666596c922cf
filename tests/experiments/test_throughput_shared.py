"""Processes that share a storage: images that are counted, and the sharing itself."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from throughput_jobs import job, write_images

from experiments.loaders.process import Arrival, Consumed, answer, consume
from experiments.pcr.shared_readers import Readers, shared_rate
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import LoaderError
from pcr_exp.measuring.throughput.job import Job
from pcr_exp.records.encode import encode_split
from pcr_exp.storage.throttle import Throttle

WINDOW = 8
EPOCH = 800


def arrivals(*given: tuple[float, int]) -> Consumed:
    return Consumed([Arrival(*arrival) for arrival in given], num_images=given[-1][1] + 4, cpu_s=0.4)


class Steady:
    """A loader that yields `count` batches of four images, one every 10 ms."""

    def __init__(self, count: int = 10**6) -> None:
        self.count = count
        self.closed = False

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:  # noqa: ARG002
        try:
            for _ in range(self.count):
                time.sleep(0.01)
                yield np.zeros((4, 16, 16, 3), np.uint8)
        finally:
            self.closed = True


def test_a_rate_is_taken_between_begins_of_windows() -> None:
    # A window has two batches: the second follows at once, the next window a second later.
    bursts = arrivals((10.0, 0), (10.0, 4), (11.0, 8), (11.0, 12), (12.0, 16), (12.0, 20))
    rate = shared_rate([bursts], 10.0, 12.5, WINDOW, EPOCH)
    assert (rate.images_per_s, rate.num_images) == (8.0, 16)
    # Images outside the period are not counted, nor is a window that began outside it.
    late = shared_rate([bursts], 10.5, 12.5, WINDOW, EPOCH)
    assert (late.images_per_s, late.num_images) == (8.0, 8)


def test_windows_begin_anew_with_an_epoch() -> None:
    """Epochs of 20 images have windows of 8, 8 and 4; in the second, none begins at a multiple of 8."""
    third = arrivals((0.0, 40), (1.0, 48), (2.0, 56), (3.0, 60), (4.0, 68))
    assert shared_rate([third], 0.5, 4.0, WINDOW, 20).num_images == 20
    first = arrivals((0.0, 12), (1.0, 20), (2.0, 28))
    assert shared_rate([first], 0.0, 2.0, WINDOW, 20).num_images == 8


def test_processes_add_up() -> None:
    fast = arrivals((0.0, 0), (0.5, 8), (1.0, 16))
    slow = arrivals((0.0, 0), (1.0, 8))
    rate = shared_rate([fast, slow], 0.0, 1.0, WINDOW, EPOCH)
    assert (rate.images_per_s, rate.slowest_images_per_s, rate.num_images) == (24.0, 8.0, 24)
    assert rate.cpu_s_per_image == pytest.approx(0.8 / 32)


def test_too_little_to_take_a_rate_from() -> None:
    with pytest.raises(LoaderError, match=r"began 1 windows of 8 images in 1 s; wanted at least two.*Raise"):
        shared_rate([arrivals((0.0, 0), (0.5, 4))], 0.0, 1.0, WINDOW, EPOCH)


def test_a_consumer_stops_at_the_time_and_ends_the_loader(tmp_path: Path) -> None:
    peer = Steady()
    until_s = time.monotonic() + 0.3
    consumed = consume(peer, tmp_path, job(), until_s)
    assert peer.closed
    assert consumed.arrivals[-1].monotonic_s >= until_s > consumed.arrivals[-2].monotonic_s
    assert [arrival.num_before for arrival in consumed.arrivals[:3]] == [0, 4, 8]
    assert consumed.num_images == 4 * len(consumed.arrivals)
    assert Consumed.from_json(consumed.to_json()) == consumed


def test_a_consumer_keeps_its_models_pace(tmp_path: Path) -> None:
    consumed = consume(Steady(), tmp_path, job(model_images_per_s=80.0), time.monotonic() + 0.2)
    first, second = consumed.arrivals[:2]
    assert second.monotonic_s - first.monotonic_s >= 4 / 80


def test_a_loader_that_ends_too_soon_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="1 epochs ended before the time"):
        consume(Steady(count=2), tmp_path, job(), time.monotonic() + 60)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Records of 4 images each, 16 in all."""
    images = write_images(tmp_path / "images", 16)
    samples = [Sample(str(i), Path(image.path), {"class": image.label}) for i, image in enumerate(images)]
    encode_split(
        samples,
        {"class": ["a", "b"]},
        tmp_path / "records",
        dataset="made_up",
        split="train",
        images_per_record=4,
    )
    return tmp_path / "records"


def reading(records: Path) -> Job:
    """Return a job that reads the baseline at 80 images/s."""
    size = sum(path.stat().st_size for path in (records / "baseline").glob("*.pcr"))
    return job(
        "baseline",
        "libjpeg",
        storage=StorageConfig(name="slow", bandwidth_mib_per_s=80 * size / 16 / 2**20),
        settings=LoaderConfig(num_workers=0, shuffle_records=1),
        num_epochs=10**6,
    )


def test_readers_of_one_bucket_share_its_bandwidth(records: Path) -> None:
    throttle = Throttle.create(reading(records).storage)
    from_s = time.monotonic() + 0.5
    request = {"do": "consume", "folder": str(records), "until_s": from_s + 3.0}
    jobs = [replace(reading(records), bucket=str(throttle.path), seed=seed) for seed in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(answer, [{**request, "job": each.to_json()} for each in jobs])
    rate = shared_rate([Consumed.from_json(found) for found in answers], from_s, from_s + 3.0, 4, 16)
    # Each alone would read 80 images/s, and a busy machine can slow both down. They are faster only because
    # records differ in size, and some were read ahead before: in one second that could be a quarter.
    assert rate.images_per_s < 1.2 * 80


@pytest.mark.slow
def test_processes_share_one_bandwidth(records: Path) -> None:
    with Readers(records, 2) as readers:
        readers.warm(reading(records))
        rate = readers.measure(
            reading(records), settle_s=1.0, measure_s=2.0, window_images=4, epoch_images=16
        )
    assert 40 < rate.images_per_s < 1.2 * 80
    assert rate.slowest_images_per_s < 60
