"""What a row of `rows.jsonl` holds, and the one validator for rows to be written and rows on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pcr_exp.errors import RunError
from pcr_exp.training.clocks import NAMES as CLOCKS
from pcr_exp.training.distributed.exchange import Exchange
from pcr_exp.training.distributed.processes import Processes

Row = dict[str, Any]


class AnyColumn(Protocol):
    """What a value of a column may be."""

    def problem(self, value: object) -> str | None:
        """Return what was wanted if the value cannot be, else None."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a whole or real number in [low, high]."""

    whole: bool
    low: float = 0
    high: float = math.inf
    nullable: bool = False

    def problem(self, value: object) -> str | None:
        """Return what is wrong with a value, or None."""
        if value is None and self.nullable:
            return None
        types = (int,) if self.whole else (int, float)
        right_type = isinstance(value, types) and not isinstance(value, bool)
        # The comparison is false for nan; infinity is no measurement either.
        if right_type and self.low <= value <= self.high and math.isfinite(value):  # type: ignore[operator, arg-type]
            return None
        number = "a whole number" if self.whole else "a finite number"
        return f"{number} in [{self.low:g}, {self.high:g}]{' or null' if self.nullable else ''}"


@dataclass(frozen=True, slots=True)
class Word:
    """One column: a word of a list."""

    words: tuple[str, ...]

    def problem(self, value: object) -> str | None:
        """Return what was wanted, or None."""
        return None if value in self.words else " or ".join(self.words)


@dataclass(frozen=True, slots=True)
class Metric:
    """One column: a share, null where it is not defined, or one of these for each class."""

    def problem(self, value: object) -> str | None:
        """Return what was wanted, or None."""
        shares = value.values() if isinstance(value, dict) else [value]
        column = Column(whole=False, high=1, nullable=True)
        problems = [problem for share in shares if (problem := column.problem(share))]
        return f"{problems[0]}, or one for each class" if problems else None


@dataclass(frozen=True, slots=True)
class Scores:
    """One column: a finite number for each of some scan groups; JSON's keys are strings."""

    def problem(self, value: object) -> str | None:
        """Return what was wanted, or None."""
        score = Column(whole=False, low=-math.inf)
        right = isinstance(value, dict) and all(
            isinstance(group, str) and group.isdigit() and score.problem(number) is None
            for group, number in value.items()
        )
        return None if right else "a finite number for each scan group, as in {'5': 0.9}"


_COUNT = Column(whole=True)
_POSITIVE = Column(whole=True, low=1)
_REAL = Column(whole=False)
_SHARE = Column(whole=False, high=1)
_MEASURE = Column(whole=False, nullable=True)  # null: nothing to measure yet

MEASURES = ("given", "ms_ssim", "cosine", "train_loss", "tune_loss", "val_loss", "images_per_s")
"""What the scores of a policy's candidates can be; `given`: the configuration said it; `val_loss`:
of runs from before images were held out to tune by."""

COMMON: dict[str, AnyColumn] = {
    "epoch": _POSITIVE,  # of the last update, from 1; in an eval row also the epochs completed
    "step": _POSITIVE,  # updates done
    "samples_seen": _POSITIVE,  # fresh images trained on
    "train_s": _REAL,  # seconds since the run began, over all its sessions
    "wait_s": _REAL,
    "probe_s": _REAL,  # of a scan policy's probes
    "eval_s": _REAL,
    "other_s": _REAL,
    "wall_s": _REAL,
    "scan_group": _POSITIVE,  # of the last batch
    "record_bytes": _COUNT,  # of the records that the images came from
    "probe_bytes": _COUNT,  # that storage delivered to a scan policy's probes
    "bytes_read": _COUNT,  # that storage delivered: those, read-ahead, second reads of a resumed run
    "learning_rate": _REAL,  # of the last update
}
COLUMNS: dict[str, dict[str, AnyColumn]] = {
    "train": COMMON
    | {
        "train_loss": _REAL,  # this and the rates: since the last train row
        "images_per_s": _REAL,
        "storage_mib_per_s": _REAL,
        "wait_share": _SHARE,
    },
    "eval": COMMON
    | {
        "train_loss": _REAL,  # over the epoch
        "val_loss": _REAL,
        "num_val": _POSITIVE,
    },
    "policy": COMMON
    | {
        "epoch": _COUNT,  # completed; this and the next three are 0 before the first update
        "step": _COUNT,
        "samples_seen": _COUNT,
        "scan_group": _COUNT,
        "group": _POSITIVE,  # chosen, for the records that are read from here on
        "measure": Word(MEASURES),  # what the scores are
        "scores": Scores(),  # of the candidates that were compared
        "bytes_saved": _COUNT,  # all scan groups of the records trained on, less record_bytes
    },
}
LATER: dict[str, float] = {"probe_s": 0.0, "probe_bytes": 0}
"""Columns that rows from before there were probes lack, and what they are taken to hold."""
OPTIONAL: dict[str, AnyColumn] = {
    "full_bytes": _COUNT,  # what record_bytes would be, had every record been read with all its scan groups
    "samples_trained": _COUNT,  # images of all updates, repeats of data echoing included
    "upstream_s_per_sample": _MEASURE,  # per fresh image, of what stands in front of the echo
    "downstream_s_per_sample": _MEASURE,  # per image trained on, of what stands behind it
    "upstream_ratio": _MEASURE,  # R: the first over the second
    "kept_bytes_mean": _MEASURE,  # that waited for backward in the first process, over updates looked at
    "kept_bytes_max": Column(whole=True, nullable=True),  # the most of them
}
"""Columns of every row that runs of earlier versions lack, and that nothing can be taken for."""
TRAFFIC: dict[str, AnyColumn] = {
    "bytes_sent": _COUNT,  # of gradients and model changes, by all processes
    "pushed_values": _COUNT,  # gradient values that all processes encoded
    "pushed_bytes": _COUNT,  # and the bytes of their messages, each counted once
    "pushed_plain_values": _COUNT,  # those of small tensors: float32, past the codec
    "pulled_values": _COUNT,  # the same of what processes decoded of a server's messages
    "pulled_bytes": _COUNT,
    "pulled_plain_values": _COUNT,
    "network_s": _REAL,  # seconds of train_s that the first process waited for the throttled network
}
"""Columns of runs of several processes, in rows of every kind, since the run began: all, or none."""
CUMULATIVE = (
    *("step", "samples_seen", "samples_trained"),
    *("train_s", "wait_s", "probe_s", "eval_s", "other_s", "wall_s"),
    *("record_bytes", "full_bytes", "probe_bytes", "bytes_read"),
)
MEASURED = (
    *("train_s", "wait_s", "probe_s", "eval_s", "other_s", "wall_s", "probe_bytes", "bytes_read"),
    *("images_per_s", "storage_mib_per_s", "wait_share", "network_s", "bytes_sent"),
    *("upstream_s_per_sample", "downstream_s_per_sample", "upstream_ratio"),
)
"""Columns that two runs of one configuration need not share; all others are deterministic on a CPU.

`bytes_sent` is among them because a resumed run's first step sends one larger message: DDP cuts its buckets
only after it.
"""

_CLOCK_TOLERANCE = 0.01


def validate_row(row: Mapping[str, Any]) -> None:
    """Check one row against the schema.

    Raises:
        RunError: a column is missing, unknown or has a value that it cannot have, or the clocks do not add
            up to the wall.
    """
    kind = row.get("kind")
    columns = COLUMNS.get(kind) if isinstance(kind, str) else None
    if columns is None:
        raise RunError(f"row: kind={kind!r}; wanted {' or '.join(COLUMNS)}.")
    row = {**LATER, **row}
    if TRAFFIC.keys() & row.keys():
        columns = columns | TRAFFIC
    if kind == "eval":  # which metrics there are is the task's to say
        metrics = {name for name in row if name.startswith("val_")} - columns.keys()
        columns = columns | dict.fromkeys(metrics, Metric())
    missing = sorted(columns.keys() - row.keys())
    unknown = sorted(row.keys() - columns.keys() - OPTIONAL.keys() - {"kind"})
    if missing or unknown:
        raise RunError(f"{kind} row: missing columns {missing}, unknown columns {unknown}.")
    for name, column in (columns | {name: OPTIONAL[name] for name in OPTIONAL if name in row}).items():
        if wanted := column.problem(row[name]):
            raise RunError(f"{kind} row: {name}={row[name]!r}; wanted {wanted}.")
    total_s = sum(row[f"{clock}_s"] for clock in CLOCKS)
    if abs(total_s - row["wall_s"]) > _CLOCK_TOLERANCE * max(row["wall_s"], 1):
        raise RunError(f"{kind} row: the clocks add up to {total_s} s; wanted wall_s={row['wall_s']} s.")


def read_rows(path: Path) -> list[Row]:
    """Read and validate all rows of a run; those of `LATER`'s columns that it lacks are filled in.

    Raises:
        RunError: the file is missing, a line is no row, or something that only grows has shrunk; the message
            names file and line.
    """
    if not path.is_file():
        raise RunError(f"{path} is not there: wanted the rows of a run.")
    rows: list[Row] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise RunError(f"row: {line[:40]!r}; wanted a JSON object.")
            validate_row(row)
            row = LATER | row
            if rows:
                _require_growth(rows[-1], row)
        except (json.JSONDecodeError, RunError) as error:
            raise RunError(f"{path}, line {number}: {error}") from error
        rows.append(row)
    return rows


def _require_growth(before: Row, row: Row) -> None:
    for name in (*CUMULATIVE, *TRAFFIC):
        if name in row and row[name] < before.get(name, 0):
            raise RunError(f"{name} fell from {before[name]} to {row[name]}; wanted it to grow.")


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
