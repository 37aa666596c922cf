"""One row for all processes, from the row that each has made of its own share."""

from __future__ import annotations

from pcr_exp.runs.rows import Row
from pcr_exp.training.distributed.exchange import Exchange
from pcr_exp.training.distributed.processes import Processes

_WHOLE = (
    *("samples_seen", "samples_trained", "record_bytes", "full_bytes", "probe_bytes", "bytes_read"),
    "bytes_saved",  # of policy rows
)
_SUMMED = (*_WHOLE, "images_per_s", "storage_mib_per_s")


def team_row(row: Row, exchange: Exchange, processes: Processes) -> Row:
    """Add up what processes count apart, and tell what they sent; clocks stay the first process's own.

    Every process calls this with the same row of its own. One process alone gets its row back.
    """
    traffic = exchange.traffic
    if traffic is None:
        return row
    keys = [key for key in _SUMMED if key in row]
    counted = {
        "bytes_sent": traffic.bytes_sent,
        "pushed_values": traffic.pushed_values,
        "pushed_bytes": traffic.pushed_bytes,
        "pushed_plain_values": traffic.pushed_plain_values,
        "pulled_values": traffic.pulled_values,
        "pulled_bytes": traffic.pulled_bytes,
        "pulled_plain_values": traffic.pulled_plain_values,
    }
    totals = processes.totals([*(row[key] for key in keys), *counted.values()])
    summed = dict(zip([*keys, *counted], totals, strict=True))
    whole = {key: int(summed[key]) for key in (*_WHOLE, *counted) if key in summed}
    return {**row, **summed, **whole, "network_s": exchange.network_s}
