"""Columns of rows that say what storage delivered, and what came in place of it."""

from __future__ import annotations

from pcr_exp.system.columns import Column

STORAGE_COLUMNS: tuple[Column, ...] = (
    Column(
        name="probe_bytes",
        unit="bytes",
        meaning="bytes that storage delivered to a scan policy's probes",
        kind="count",
        grows=True,
        deterministic=False,
        combine="sum",
    ),
    Column(
        name="bytes_read",
        unit="bytes",
        meaning="all bytes that storage delivered: read-ahead, probes and second reads of a resumed run too",
        kind="count",
        grows=True,
        deterministic=False,
        combine="sum",
    ),
    Column(
        name="num_requests",
        unit="requests",
        meaning="what storage was asked for to give bytes_read, requests that were made again included",
        kind="count",
        grows=True,
        deterministic=False,
        combine="sum",
        presence="optional",
    ),
    Column(
        name="num_retries",
        unit="requests",
        meaning="those of num_requests that were made again, as they had failed on their way",
        kind="count",
        grows=True,
        deterministic=False,
        combine="sum",
        presence="optional",
    ),
    Column(
        name="cached_bytes",
        unit="bytes",
        meaning="bytes of training records that a cache gave in place of storage (storage.cache)",
        kind="count",
        grows=True,
        deterministic=False,
        combine="sum",
        presence="optional",
    ),
    Column(
        name="num_replaced",
        unit="images",
        meaning="images trained on in place of damaged ones (loader.on_corrupt=replace)",
        kind="count",
        grows=True,
        combine="sum",
        presence="optional",
    ),
)
