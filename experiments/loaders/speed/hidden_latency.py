"""Share of 100 MiB/s that read-ahead reaches though every request takes 50 ms, by scan group and record size.

`python -m experiments.loaders.speed.hidden_latency --images-per-record 1024` prints a table and saves it as
latency.csv in outputs/throttle. Nothing is decoded, because at group 10 this bandwidth delivers more than two
cores can decode.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from experiments.results.study import Row, Study, native_records
from pcr_exp.config.loader import StorageConfig
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.read_ahead import Reading, by_calls, reads_ahead, reads_in_flight, reads_per_call
from pcr_exp.records import headers as known_headers
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.open import open_storage
from pcr_exp.system import MIB

SHUFFLE_RECORDS = 4


def measure_latency(
    folder: Path, group: int, storage: StorageConfig, *, repeats: int, seconds: float
) -> Iterator[Row]:
    """Yield rows of one scan group; read-ahead knows the bandwidth and the latency, as in the loader."""
    records = RecordSet(open_storage(str(folder), storage), "pcr")
    num_records = len(records.index.records)
    mean_bytes = records.index.epoch_bytes(group) / num_records
    in_flight = reads_in_flight(storage, mean_bytes)
    per_call = reads_per_call(in_flight, records.storage.reads_many)
    under_way = by_calls(in_flight, per_call)
    ahead = reads_ahead(under_way, SHUFFLE_RECORDS, SHUFFLE_RECORDS, mean_bytes)
    fetcher: Fetcher[int, RecordPrefix] = Fetcher(
        lambda record: records.read_prefix(record, group),
        (record for _ in range(10**6) for record in range(num_records)),
        num_threads=Reading(in_flight, ahead, per_call).num_threads,
        read_many=lambda wanted: records.read_prefixes([(record, group) for record in wanted]),
        at_once=per_call,
        ahead=ahead,
    )
    assert storage.bandwidth_mib_per_s is not None
    num_windows = max(1, round(seconds * storage.bandwidth_mib_per_s * MIB / mean_bytes / SHUFFLE_RECORDS))
    fetcher.start()
    try:
        for _ in range(1 + 2 * under_way // SHUFFLE_RECORDS):
            fetcher.take(SHUFFLE_RECORDS)
        for repeat in range(repeats):
            started_s = time.perf_counter()
            # A window at a time, as in the loader.
            num_bytes = sum(
                prefix.num_bytes for _ in range(num_windows) for prefix in fetcher.take(SHUFFLE_RECORDS)
            )
            took_s = time.perf_counter() - started_s
            yield {
                "headers_known": "yes" if known_headers._KEPT_BYTES else "no",
                "images_per_record": records.index.records[0].num_samples,
                "group": group,
                "read_kb": round(mean_bytes / 1e3, 1),
                "in_flight": in_flight,
                "repeat": repeat,
                "reads_per_s": num_windows * SHUFFLE_RECORDS / took_s,
                "mib_per_s": num_bytes / MIB / took_s,
                "share_of_bandwidth": num_bytes / MIB / took_s / storage.bandwidth_mib_per_s,
            }
    finally:
        fetcher.close()


def rows(given: Namespace) -> Iterator[Row]:
    """Measure every record size at every group; the repeats of each are consecutive, in one stream."""
    storage = StorageConfig(name="far", bandwidth_mib_per_s=100, latency_ms=50)
    if given.unseen:
        known_headers._KEPT_BYTES = 0
    for size in given.images_per_record:
        folder = native_records(max(200, 2 * size), size, images=given.images)
        for group in given.groups:
            yield from measure_latency(folder, group, storage, repeats=given.repeats, seconds=given.seconds)


main = Study(__doc__, "outputs/throttle/latency.csv", rows, repeats=3)
main.add("--images-per-record", type=int, nargs="+", default=[1024])
main.add("--groups", type=int, nargs="+", default=[1, 2, 5, 10])
main.add("--seconds", type=float, default=3.0)
main.add("--unseen", action="store_true", help="keep no header: all reads are a first epoch's")

if __name__ == "__main__":
    main()
