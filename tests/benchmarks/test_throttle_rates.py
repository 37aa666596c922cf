"""The loader reaches the lower of the rates that storage and decoding allow, measured on photographs.

`python -m pytest -m slow tests/benchmarks/test_throttle_rates.py -s` prints the measurements.
"""

import math
from pathlib import Path

import pytest
import torch

from experiments.loaders.speed.epoch_starts import measure_epochs
from experiments.loaders.speed.hidden_latency import measure_latency
from experiments.loaders.speed.throttled_loader import SCANS, UNLIMITED, measure_bound, open_loader, take
from experiments.results.study import native_records
from pcr_exp.config.loader import LoaderConfig, StorageConfig

pytestmark = pytest.mark.slow

# Other work on the machine can slow the loader down, so the best of several tries counts.
TRIES = 3
CONFIG = LoaderConfig(num_workers=1)
IMAGES = Path(__file__).parents[2].parent / "shared" / "data" / "imagenet_native_sample"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not IMAGES.is_dir():
        pytest.skip(f"../shared/data is not here: {IMAGES}")
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("rates")


@pytest.fixture(scope="module")
def folder(place: Path) -> Path:
    """800 photographs in 50 records of 16, so that a batch of 64 is one window of four records."""
    return native_records(800, 16, place / "16", images=IMAGES)


@pytest.mark.parametrize("scan", SCANS)
def test_the_loader_reaches_the_lesser_of_bandwidth_and_its_own_speed(folder: Path, scan: str) -> None:
    """The loader reaches at least 97 % of min(W / mean prefix, its unthrottled rate)."""
    with open_loader(folder, scan, UNLIMITED, CONFIG) as loader:
        unthrottled = loader.batches(0, 0, 10**6)
        for mib_per_s in (100, 25, 5, 1):
            shares: list[float] = []
            while not any(share >= 0.97 for share in shares):
                assert len(shares) < TRIES, f"{scan} at {mib_per_s} MiB/s: {shares} of the bound, wanted 0.97"
                (row,) = measure_bound(unthrottled, folder, scan, mib_per_s, repeats=1, config=CONFIG)
                print(f"\n{row}", end="")
                shares.append(float(row["share_of_bound"]))


@pytest.mark.parametrize("requests_per_s", [10, 40])
def test_requests_per_second_are_reached(folder: Path, requests_per_s: int) -> None:
    """If requests are the limit, the loader makes at least 97 % of them, although each takes 50 ms."""
    storage = StorageConfig(name="test", requests_per_s=requests_per_s, latency_ms=50)
    shares: list[float] = []
    with open_loader(folder, "group_1", storage, CONFIG) as loader:
        stream = loader.batches(0, 0, 10**6)
        take(stream, 1)
        while not any(share >= 0.97 for share in shares):
            assert len(shares) < TRIES, f"{shares} of {requests_per_s} requests/s, wanted 0.97"
            done = take(stream, requests_per_s)
            shares.append(math.ceil(done.num_images / 16) / done.seconds / requests_per_s)
            print(f"\n{requests_per_s} requests/s: {shares[-1]:.3f} of the bound", end="")


@pytest.mark.parametrize("images_per_record", [4, 16, 64])
@pytest.mark.parametrize("group", [1, 10])
def test_latency_is_hidden_whatever_the_size_of_a_read(
    place: Path, images_per_record: int, group: int
) -> None:
    """The loader reaches at least 90 % of 100 MiB/s at 50 ms a request, from these two numbers alone.

    Reads are 27 kB to 7 MB. Below that, threads of one Python process are the limit, at about 4,000 reads/s.
    """
    records = native_records(200, images_per_record, place / f"latency-{images_per_record}", images=IMAGES)
    storage = StorageConfig(name="test", bandwidth_mib_per_s=100, latency_ms=50)
    rows = measure_latency(records, group, storage, repeats=TRIES, seconds=2)
    print(*rows, sep="\n")
    assert max(float(row["share_of_bandwidth"]) for row in rows) >= 0.9


def test_training_is_not_waited_for_where_epochs_meet(folder: Path) -> None:
    """If storage is as fast as training (50 records, 8 lanes), the default is at least as good as 4 ahead."""
    rates = dict.fromkeys((4, None), 0.0)
    for _ in range(TRIES):
        for ahead in rates:
            found = measure_epochs(folder, "group_5", mib_per_s=10, records_ahead=ahead, num_epochs=3)
            rates[ahead] = max(rates[ahead], found["share_of_bound"])
    print(rates)
    assert rates[None] >= max(0.95, rates[4])
