"""The throughput model: rate, bottleneck and cost of a described cluster at each scan level.

    X(g) = min(compute, decode(g), W / E[s_g])

W is storage bandwidth and s_g the bytes of an image up to scan group g (Kuchnik et al., PVLDB 14(11)). The
single head of a disk seeks before each read, and transfers nothing meanwhile. An image then also takes its
share of a seek, and W / E[s_g] becomes 1 / (E[s_g] / W + seek / images per read). Storage with limits per
request adds two more terms: requests/s x images per request, and Little's law for the reads in flight. All
functions are pure; infinity means no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcr_exp.analysis.frame import LEVEL
from pcr_exp.config.describe import group_number
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.scan import scan_of
from pcr_exp.config.throughput import PlanConfig, PlannedDataConfig
from pcr_exp.errors import ConfigError
from pcr_exp.loading import read_ahead as reading
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.system import MIB

GB = 10**9
"""Bytes that `cost_per_gb` pays for."""


def epoch_traffic(num_images: int, images_per_record: float, image_bytes: float) -> tuple[float, int]:
    """Return the bytes and the requests of an epoch that is read entirely from storage.

    Each record is one request at any scan group, because it reads a prefix of the record.

    Args:
        num_images: Images of the epoch.
        images_per_record: Images that one request reads.
        image_bytes: Mean bytes of an image up to the scan group.
    """
    # A mean of images per record, such as 15 / 13, must not round up to one request more.
    return num_images * image_bytes, math.ceil(num_images / images_per_record - 1e-9)


def reading_dollars(
    num_bytes: float, num_requests: float, *, cost_per_gb: float, cost_per_1000_requests: float
) -> float:
    """Return the price in dollars of these bytes and requests; `cost_per_gb` is for 10^9 bytes."""
    return num_bytes / GB * cost_per_gb + num_requests / 1000 * cost_per_1000_requests


def bandwidth_images_per_s(
    bandwidth_bytes_per_s: float, image_bytes: float, *, seek_s_per_image: float = 0.0
) -> float:
    """Return W / E[s_g], or 1 / (E[s_g] / W + seek); `seek_s_per_image` is a read's seek over its images."""
    free_images_per_s = bandwidth_bytes_per_s / image_bytes
    return 1 / (1 / free_images_per_s + seek_s_per_image) if seek_s_per_image else free_images_per_s


def in_flight_images_per_s(
    reads_in_flight: float,
    images_per_read: float,
    *,
    latency_s: float,
    read_bytes: float,
    bandwidth_bytes_per_s: float,
    seek_s: float = 0.0,
) -> float:
    """Return the images/s that these reads in flight can deliver, by Little's law: X = L / T.

    T is the time of a read that has the storage to itself: latency, seek, and its bytes at full bandwidth.
    """
    read_s = latency_s + seek_s + read_bytes / bandwidth_bytes_per_s
    return math.inf if read_s == 0 else reads_in_flight * images_per_read / read_s


def reads_in_flight(reads_per_s: float, *, latency_s: float, transfer_s: float) -> float:
    """Return the number of reads in flight at this rate, by Little's law: L = X T.

    `transfer_s` is how long a read occupies the storage: its bytes, and its seek if there is one. With fewer
    reads in flight, latency is the limit and not bandwidth.
    """
    return reads_per_s * (latency_s + transfer_s)


def images_per_s(limits: Mapping[str, float]) -> tuple[float, str]:
    """Return the smallest limit (images/s) and its name; of equal ones, the first."""
    name = min(limits, key=lambda limit: limits[limit])
    return limits[name], name


def roofline_images_per_s(
    image_bytes: float,
    *,
    bandwidth_bytes_per_s: float,
    compute_images_per_s: float,
    seek_s_per_image: float = 0.0,
) -> float:
    """Return min(compute, W / E[s]): flat up to the knee, then falling as 1 / E[s]. Seeks lower the slope."""
    storage = bandwidth_images_per_s(bandwidth_bytes_per_s, image_bytes, seek_s_per_image=seek_s_per_image)
    return min(compute_images_per_s, storage)


def knee_image_bytes(
    *, bandwidth_bytes_per_s: float, compute_images_per_s: float, seek_s_per_image: float = 0.0
) -> float:
    """Return E[s_g] = W (1 / X_c - seek): the largest mean image at which storage does not limit compute.

    It is 0 or less, and there is no knee, if seeks alone limit compute.
    """
    return bandwidth_bytes_per_s / compute_images_per_s - bandwidth_bytes_per_s * seek_s_per_image


def epochs_per_h(num_images: float, images_per_s: float) -> float:
    """Return the epochs of `num_images` in an hour."""
    return 3600 * images_per_s / num_images


def fill_s(window_images: float, limits: Mapping[str, float]) -> float:
    """Return the seconds that a run takes beyond images / X, because its stages start and end in sequence.

    Images pass the stages (`limits`, images/s) in windows. A pipeline takes the time of every stage for one
    window, and the time of the slowest stage for each other window. The first window is read before any is
    trained, and the last is trained after all are read.
    """
    window_s = [window_images / limit for limit in limits.values()]
    return sum(window_s) - max(window_s)


def time_to_accuracy_s(
    epochs_to_accuracy: float, num_images: float, images_per_s: float, *, start_s: float = 0.0
) -> float:
    """Return the seconds to train `epochs_to_accuracy` epochs of `num_images`; `start_s` is from `fill_s`."""
    return start_s + epochs_to_accuracy * num_images / images_per_s


LIMITS = ["compute", "decode", "bandwidth", "requests", "in_flight"]
"""Limits of a cluster, each in a column `<limit>_images_per_s`; `bound` names the smallest.

`bandwidth` includes the seeks of a disk. If they take longer than the bytes, `bound` is `seeks`."""

PREDICTION_COLUMNS = [
    *("model", *LEVEL, "workers", "image_bytes", "bandwidth_mib_per_s", "seek_s_per_image"),
    *(f"{limit}_images_per_s" for limit in LIMITS),
    *("images_per_s", "bound", "mib_per_s", "requests_per_s", "requests_in_flight"),
    *("speedup_over_baseline", "epochs_per_h", "hours_to_accuracy"),
    *("bytes_per_epoch", "requests_per_epoch", "dollars_per_epoch", "dollars_to_accuracy"),
]


@dataclass(frozen=True, slots=True)
class PlannedData:
    """The numbers of `PlannedDataConfig`, as given or read from records."""

    num_images: int
    images_per_record: float
    image_bytes: dict[str, float]


def planned_data(config: PlannedDataConfig, scans: Iterable[str]) -> PlannedData:
    """Return the dataset's numbers at these scan levels, from its configuration or its records.

    Raises:
        ConfigError: a name is not a scan level, or a level has no size.
        RecordError: the records cannot be opened.
    """
    levels = {name: scan_of(name) for name in scans}
    if config.records is None:
        assert config.num_images is not None and config.images_per_record is not None
        missing = [name for name in levels if name not in config.image_bytes]
        if missing:
            raise ConfigError(
                f"plan.data.image_bytes lacks {', '.join(missing)}: wanted the mean bytes per image of every "
                "scan level that plan.decode_images_per_s names."
            )
        sizes = {name: config.image_bytes[name] for name in levels}
        return PlannedData(config.num_images, config.images_per_record, sizes)
    storage = LocalStorage(config.records)
    indexes = {
        encoding: RecordSet(storage, encoding).index
        for encoding in {scan.encoding for scan in levels.values()}
    }
    sizes = {name: indexes[scan.encoding].mean_prefix_bytes(scan.group) for name, scan in levels.items()}
    index = next(iter(indexes.values()))
    return PlannedData(index.num_samples, index.num_samples / len(index.records), sizes)


def predict(plan: PlanConfig, workers: Iterable[int]) -> pd.DataFrame:
    """Return one row of PREDICTION_COLUMNS per model, number of workers and scan level.

    Rates are of all workers together. `mib_per_s` and `requests_per_s` are what storage delivers at
    `images_per_s`; `requests_in_flight` is how many requests that takes. Dollars are the price of an epoch's
    bytes and requests, all read from the storage, at `plan.cost_per_gb` and `plan.cost_per_1000_requests`.
    Hours and dollars to accuracy are NaN without epochs to accuracy.

    Raises:
        ConfigError, RecordError: as in `planned_data`.
    """
    data = planned_data(plan.data, plan.decode_images_per_s)
    rows: list[dict[str, Any]] = []
    for model in plan.model_images_per_s:
        for count in workers:
            levels = {scan: _level(plan, data, model, count, scan) for scan in data.image_bytes}
            baseline = levels["baseline"]["images_per_s"]
            rows += [
                row | {"speedup_over_baseline": row["images_per_s"] / baseline} for row in levels.values()
            ]
    return pd.DataFrame(rows)[PREDICTION_COLUMNS]


def affordable(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return the highest scan group at which accelerators do not wait, per model and number of workers.

    Further columns: `scan`, `group`, `images_per_s`, `image_bytes` and `waits`. If accelerators wait at every
    group, `waits` is true and the group is the fastest one, the lower of equal ones.
    """
    groups = predictions[predictions["encoding"] != "baseline"]
    rows = []
    for (model, workers), found in groups.groupby(["model", "workers"], sort=False):
        levels = found.sort_values("image_bytes")
        full = levels[levels["bound"] == "compute"]
        best = (full if len(full) else levels.nlargest(1, "images_per_s")).iloc[-1]
        level = {key: best[key] for key in ("scan", "group", "image_bytes", "images_per_s")}
        rows.append({"model": model, "workers": workers, **level, "waits": full.empty})
    return pd.DataFrame(rows)


def worker_counts(max_workers: int) -> list[int]:
    """Return 1, 2, 4, ... up to `max_workers`."""
    return [2**exponent for exponent in range(int(math.log2(max_workers)) + 1)]


def bandwidth_bytes_per_s(storage: StorageConfig) -> float:
    """Return W; infinite without a limit."""
    return math.inf if storage.bandwidth_mib_per_s is None else storage.bandwidth_mib_per_s * MIB


def _level(plan: PlanConfig, data: PlannedData, model: str, workers: int, scan: str) -> dict[str, Any]:
    image_bytes, storage = data.image_bytes[scan], plan.storage
    read_bytes = image_bytes * data.images_per_record
    bandwidth = bandwidth_bytes_per_s(storage)
    latency_s, seek_s, transfer_s = storage.latency_ms / 1e3, storage.seek_ms / 1e3, read_bytes / bandwidth
    seek_s_per_image = seek_s / data.images_per_record
    in_flight = plan.reads_in_flight or reading.reads_in_flight(storage, read_bytes)
    limits = {
        "compute": workers * plan.model_images_per_s[model],
        "decode": workers * plan.cores_per_worker * plan.decode_images_per_s[scan],
        "bandwidth": bandwidth_images_per_s(bandwidth, image_bytes, seek_s_per_image=seek_s_per_image),
        "requests": (storage.requests_per_s or math.inf) * data.images_per_record,
        "in_flight": in_flight_images_per_s(
            workers * in_flight,
            data.images_per_record,
            latency_s=latency_s,
            read_bytes=read_bytes,
            bandwidth_bytes_per_s=bandwidth,
            seek_s=seek_s,
        ),
    }
    level = scan_of(scan)
    rate, bound = images_per_s(limits)
    if bound == "bandwidth" and seek_s > transfer_s:
        bound = "seeks"
    reads_per_s = rate / data.images_per_record
    epochs = plan.epochs_to_accuracy.get(scan, math.nan)
    epoch_bytes, epoch_requests = epoch_traffic(data.num_images, data.images_per_record, image_bytes)
    dollars_per_epoch = reading_dollars(
        epoch_bytes,
        epoch_requests,
        cost_per_gb=plan.cost_per_gb,
        cost_per_1000_requests=plan.cost_per_1000_requests,
    )
    return {
        "model": model,
        "scan": scan,
        "encoding": level.encoding,
        "group": group_number(level.encoding, level.group),
        "workers": workers,
        "image_bytes": image_bytes,
        "bandwidth_mib_per_s": bandwidth / MIB,
        "seek_s_per_image": seek_s_per_image,
        **{f"{limit}_images_per_s": value for limit, value in limits.items()},
        "images_per_s": rate,
        "bound": bound,
        "mib_per_s": rate * image_bytes / MIB,
        "requests_per_s": reads_per_s,
        "requests_in_flight": reads_in_flight(
            reads_per_s, latency_s=latency_s, transfer_s=seek_s + transfer_s
        ),
        "epochs_per_h": epochs_per_h(data.num_images, rate),
        "hours_to_accuracy": time_to_accuracy_s(epochs, data.num_images, rate) / 3600,
        "bytes_per_epoch": epoch_bytes,
        "requests_per_epoch": epoch_requests,
        "dollars_per_epoch": dollars_per_epoch,
        "dollars_to_accuracy": epochs * dollars_per_epoch,
    }
