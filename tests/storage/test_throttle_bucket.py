"""One throttle for all processes of a host: its file is shared, joined, refused and removed."""

import math
import pickle
import time
from pathlib import Path

import pytest

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import StorageError
from pcr_exp.storage import bucket
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage

MIB = 2**20


def test_a_pickled_throttle_is_the_same_bucket() -> None:
    throttle = Throttle.create(StorageConfig(name="test", bandwidth_mib_per_s=1))
    copy = pickle.loads(pickle.dumps(throttle))
    assert copy.path == throttle.path
    assert copy.reserve(MIB) - throttle.reserve(MIB) == -(10**9)


def test_the_owner_removes_its_file() -> None:
    throttle = Throttle.create(StorageConfig(name="test", latency_ms=1))
    path = throttle.path
    joined = Throttle.open(path)
    del joined
    assert path.exists()
    del throttle
    assert not path.exists()


def test_a_bucket_with_other_limits_is_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "bucket"
    throttle = Throttle.create(StorageConfig(name="a", bandwidth_mib_per_s=1), path)
    with pytest.raises(StorageError, match="need the same storage settings"):
        Throttle.create(StorageConfig(name="b", bandwidth_mib_per_s=2), path)
    assert path.exists(), "a refused joiner is no owner"
    assert throttle.reserve(0) > 0


def test_a_bucket_left_from_before_a_reboot_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its schedule counts from the host's previous boot, and may lie days ahead."""
    path = tmp_path / "bucket"
    left = bucket.Bucket(path, bucket.Limits(1e6, 0.0, math.inf))
    with left.locked() as schedule:
        schedule.pipe_free_ns = schedule.slot_free_ns = time.monotonic_ns() + 10**15
    assert Throttle.open(path).reserve(0) > time.monotonic_ns() + 10**14
    monkeypatch.setattr(bucket, "_boot_id", lambda: b"another start...")
    throttle = Throttle.create(StorageConfig(name="b", bandwidth_mib_per_s=2), path)
    assert throttle.limits.bytes_per_s == 2 * MIB
    assert throttle.reserve(0) <= time.monotonic_ns()


def test_limits_are_told_in_the_units_of_the_settings(tmp_path: Path) -> None:
    limited = {"bandwidth_mib_per_s": 5, "latency_ms": 50, "seek_ms": 8, "requests_per_s": 30}
    throttle = Throttle.create(StorageConfig(name="a", **limited))
    storage = ThrottledStorage(LocalStorage(tmp_path), throttle)
    assert (
        str(storage) == f"{tmp_path}, throttled to 5 MiB/s, 50 ms per request, 8 ms per seek, 30 requests/s"
    )
    assert str(Throttle.create(StorageConfig(name="a", latency_ms=2)).limits) == "2 ms per request"
    assert str(Throttle.create(StorageConfig(name="a", seek_ms=2)).limits) == "2 ms per seek"


def test_files_that_are_no_bucket_are_refused_and_kept(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open a throttle"):
        Throttle.open(tmp_path / "missing")
    for content in (b"a user's file", b"x" * 72):
        path = tmp_path / "other"
        path.write_bytes(content)
        for attempt in (Throttle.open, lambda p: Throttle.create(StorageConfig(name="a"), p)):
            with pytest.raises(StorageError, match="is not a throttle"):
                attempt(path)
        assert path.read_bytes() == content
