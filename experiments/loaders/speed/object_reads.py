"""Cost of a read from an object store or web server: obstore against fsspec, under a throttle.

`python -m experiments.loaders.speed.object_reads --server nginx --url http://127.0.0.1:8080` reads ranges of
the object `blob` (64 MiB or more, made beforehand) with as many threads as Little's law requires, and saves a
table as object_reads.csv in outputs/object_stores. The throttle sets bandwidth and latency; the server is
real. `client_cpu_us` is the CPU time per read of all threads of this process, the throttle's share included.
"""

from __future__ import annotations

import itertools
import json
import time
from argparse import Namespace
from collections.abc import Iterator

from experiments.results.study import Row, Study
from pcr_exp.config.loader import StorageConfig
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.read_ahead import reads_ahead, reads_in_flight
from pcr_exp.storage.open import open_remote
from pcr_exp.storage.protocol import Storage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage
from pcr_exp.system import MIB

BLOB = "blob"
_STEP = 1_000_003
"""Bytes between the starts of successive reads, which wrap around at the blob's end."""
_AT_ONCE = 8


def measure_reads(
    remote: Storage, read_bytes: int, storage: StorageConfig, *, repeats: int, seconds: float
) -> Iterator[Row]:
    """Yield rows of reads of one size, as fast as the throttle allows."""
    throttled = ThrottledStorage(remote, Throttle.create(storage))
    in_flight = reads_in_flight(storage, read_bytes)
    num_places = remote.size(BLOB) - read_bytes
    fetcher: Fetcher[int, bytes] = Fetcher(
        lambda i: throttled.read(BLOB, i * _STEP % num_places, read_bytes),
        itertools.count(),
        num_threads=in_flight,
        ahead=reads_ahead(in_flight, _AT_ONCE, _AT_ONCE, read_bytes),
    )
    fetcher.start()
    try:
        for _ in range(1 + 2 * in_flight // _AT_ONCE):  # open threads and connections
            fetcher.take(_AT_ONCE)
        for repeat in range(repeats):
            started_s, cpu_s, num_reads = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - started_s < seconds:
                num_reads += len(fetcher.take(_AT_ONCE))
            took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
            mib_per_s = num_reads * read_bytes / MIB / took_s
            yield {
                "read_kb": read_bytes / 1e3,
                "latency_ms": storage.latency_ms,
                "in_flight": in_flight,
                "repeat": repeat,
                "reads_per_s": num_reads / took_s,
                "share_of_bandwidth": mib_per_s / (storage.bandwidth_mib_per_s or 1),
                "client_cpu_us": 1e6 * cpu_s / num_reads,
                "client_cores": cpu_s / took_s,
            }
    finally:
        fetcher.close()


def rows(given: Namespace) -> Iterator[Row]:
    """Measure every client, size and latency; the repeats of each are consecutive, in one stream."""
    for client in given.clients:
        remote = open_remote(given.url, client, given.options)
        for kb, latency_ms in itertools.product(given.kb, given.latency_ms):
            storage = StorageConfig(name="far", bandwidth_mib_per_s=given.mib_per_s, latency_ms=latency_ms)
            found = measure_reads(remote, kb * 1000, storage, repeats=given.repeats, seconds=given.seconds)
            yield from ({"server": given.server, "client": client, **row} for row in found)


main = Study(__doc__, "outputs/object_stores/object_reads.csv", rows, repeats=3, images=False)
main.add("--server", required=True, help="what to call the server in the table")
main.add("--url", required=True, help="the folder or bucket that holds the object `blob`")
main.add("--options", type=json.loads, default={}, help="JSON: the client's own settings")
main.add("--clients", nargs="+", default=["obstore", "fsspec"])
main.add("--kb", nargs="+", type=int, default=[14, 27, 100, 400])
main.add("--latency-ms", nargs="+", type=float, default=[0.0, 10.0, 50.0])
main.add("--mib-per-s", type=float, default=100)
main.add("--seconds", type=float, default=2.0)

if __name__ == "__main__":
    main()
