"""The single definition of every column of a run's rows.

The table is here because training makes the rows. The validator, the check that counters grow, the sum over
processes, the comparison of a resumed run with an uninterrupted one, and packed result sets all use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pcr_exp.config.training import EVAL_GROUPS
from pcr_exp.errors import ConfigError
from pcr_exp.system.columns import ROW_KINDS, Column, RowKind

MEASURES = ("given", "ms_ssim", "cosine", "train_loss", "tune_loss", "val_loss", "images_per_s", "loss_bound")
"""Kinds of policy scores. `given`: set by the configuration; `val_loss`: used before a tune split existed."""


def _number(name: str, unit: str, meaning: str, **more: Any) -> Column:
    return Column(name=name, unit=unit, meaning=meaning, **more)


_OPTIONAL: dict[str, Any] = {"presence": "optional"}
_NULLABLE: dict[str, Any] = {"presence": "optional", "nullable": True}
_FROM_ONE: dict[str, Any] = {"low": 1, "zero_before_training": True}
_TRAIN, _EVAL, _POLICY = ({"rows": (kind,)} for kind in ROW_KINDS)
_LOSS: tuple[RowKind, ...] = ("train", "eval")

_count = partial(_number, kind="count")
_share = partial(_number, kind="share")
_word = partial(_number, kind="word")
_total = partial(_count, grows=True, combine="sum")
"""Counted by each process since the run began."""
_traffic = partial(_total, presence="team")
_clock = partial(_number, unit="s", grows=True, deterministic=False)
_measured = partial(_number, deterministic=False, nullable=True, presence="optional")
_rate = partial(_number, deterministic=False, combine="sum", rows=("train",))
_delivered = partial(_total, deterministic=False)
"""Delivered by storage; not deterministic, because read-ahead depends on timing."""

STORAGE_COLUMNS: tuple[Column, ...] = (
    _delivered("probe_bytes", "bytes", "bytes that storage delivered to a scan policy's probes"),
    _delivered("bytes_read", "bytes", "all that storage delivered, also ahead, to probes and a second time"),
    _delivered("num_requests", "requests", "asked for bytes_read, with those made again", **_OPTIONAL),
    _delivered("num_retries", "requests", "those of num_requests that were made again", **_OPTIONAL),
    _delivered("cached_bytes", "bytes", "training records that came from storage.cache", **_OPTIONAL),
    _total("num_replaced", "images", "trained on in place of damaged ones (loader.on_corrupt)", **_OPTIONAL),
)

COLUMNS: tuple[Column, ...] = (
    _count("epoch", "epochs", "epoch of the last update, from 1; in other rows those done", **_FROM_ONE),
    _count("step", "updates", "updates done", grows=True, **_FROM_ONE),
    _total("samples_seen", "images", "fresh images trained on", **_FROM_ONE),
    _total("samples_trained", "images", "images of all updates, repeats of an echo included", **_OPTIONAL),
    _clock("train_s", meaning="time spent in updates"),
    _clock("wait_s", meaning="time spent waiting for data"),
    _clock("probe_s", meaning="time spent in a scan policy's probes"),
    _clock("eval_s", meaning="time spent in evaluation"),
    _clock("other_s", meaning="time spent on files and trackers"),
    _clock("wall_s", meaning="time since the run began, over all its sessions: the sum of the other clocks"),
    _count("scan_group", "scan group", "that of the last batch; 0: of the baseline, and before training"),
    _total("record_bytes", "bytes", "records of the trained images, up to the groups read"),
    _total("full_bytes", "bytes", "record_bytes if all scan groups had been read", **_OPTIONAL),
    *STORAGE_COLUMNS,
    _number("learning_rate", "", "learning rate of the last update"),
    _number("kept_bytes_mean", "bytes", "waiting for backward in rank 0: mean of updates", **_NULLABLE),
    _count("kept_bytes_max", "bytes", "waiting for backward in rank 0: the largest", **_NULLABLE),
    _measured("upstream_s_per_sample", "s/image", "time per fresh image of the stages before the echo"),
    _measured("downstream_s_per_sample", "s/image", "time per image trained on of the stages after the echo"),
    _measured("upstream_ratio", "", "R of the data echoing paper: upstream over downstream time"),
    _number("train_loss", "nats", "mean per image since the last row; in eval rows of the epoch", rows=_LOSS),
    _rate("images_per_s", "images/s", "fresh images per second of train and wait time, since the last row"),
    _rate("storage_mib_per_s", "MiB/s", "bytes read per second without evaluation, since the last row"),
    _share("wait_share", "", "wait over train and wait time, row to row", deterministic=False, **_TRAIN),
    # null: the last row with a value is less than a second old, or the share is unknown.
    _measured("others_cpu_share", "", "CPU share of others since the last row", kind="share", **_TRAIN),
    _number("val_loss", "nats", "mean cross-entropy per evaluated image, without label smoothing", **_EVAL),
    _number(
        "val_r2", "", "share of variance explained (task=regression)", low=-math.inf, **_EVAL, **_OPTIONAL
    ),
    _number("val_mae", "the label's", "mean absolute error (task=regression)", **_EVAL, **_OPTIONAL),
    _share("val_top1", "", "evaluated images whose class is the highest score", **_EVAL, **_OPTIONAL),
    _share("val_top5", "", "class is among the five highest; null: fewer classes", **_EVAL, **_NULLABLE),
    _word("eval_group", "", "the fidelity that the images were read at", words=EVAL_GROUPS, **_EVAL),
    _count("num_val", "images", "evaluated images", low=1, **_EVAL),
    _count("group", "scan group", "chosen for the records that are read from here on", low=1, **_POLICY),
    _word("measure", "", "what the scores are", words=MEASURES, **_POLICY),
    _number("scores", "", "of the candidates that were compared, by scan group", kind="scores", **_POLICY),
    _count("bytes_saved", "bytes", "all groups of the records less record_bytes", combine="sum", **_POLICY),
    # DDP forms its buckets only after the first step, which therefore sends one larger message. A resumed run
    # sends another one.
    _traffic("bytes_sent", "bytes", "gradients and model changes of all processes", deterministic=False),
    _traffic("pushed_values", "values", "gradient values that all processes encoded"),
    _traffic("pushed_bytes", "bytes", "size of the messages with them, each counted once"),
    _traffic("pushed_plain_values", "values", "those of small tensors, sent as float32 past the codec"),
    _traffic("pulled_values", "values", "values that processes decoded of a server's messages"),
    _traffic("pulled_bytes", "bytes", "size of those messages"),
    _traffic("pulled_plain_values", "values", "those of small tensors, sent as float32 past the codec"),
    _clock("network_s", meaning="part of train_s spent waiting for the throttled network", presence="team"),
)
"""All columns, in the order of a packed result set."""

TRAFFIC = tuple(column.name for column in COLUMNS if column.presence == "team" and column.combine == "sum")
"""Columns that `distributed.exchange.Traffic` counts, under the same names."""


def metric_column(name: str) -> Column:
    """Return the column of another task metric (`Task.metrics`), which is `val_<metric>` in eval rows."""
    return Column(name=name, unit="", meaning="metric of the task", rows=("eval",), kind="metric")


def images_column(source: str) -> str:
    """Return the column name for a mixture source's images that were trained on."""
    return f"images_of_{source}"


def bytes_column(source: str) -> str:
    """Return the column name for the bytes of these images' records."""
    return f"record_bytes_of_{source}"


def validated_column(source: str) -> str:
    """Return the column name for a mixture source's evaluated images."""
    return f"val_images_of_{source}"


def source_columns(sources: Iterable[str]) -> list[Column]:
    """Return the additional columns in rows of a run on a mixture."""
    columns = []
    for name in sources:
        columns += [
            _total(images_column(name), "images", f"fresh images of {name} trained on", **_OPTIONAL),
            _total(bytes_column(name), "bytes", f"record_bytes of {name}", **_OPTIONAL),
            _count(validated_column(name), "images", f"num_val of {name}", **_EVAL, **_OPTIONAL),
        ]
    return columns


def with_declared(declared: Sequence[Column]) -> tuple[Column, ...]:
    """Return the table with the columns that a run's scan policy declares.

    A declared column named `measure` adds its words to the values that `measure` may have.

    Raises:
        ConfigError: two columns have one name.
    """
    words = [word for column in declared if column.name == "measure" for word in column.words]
    declared = [column for column in declared if column.name != "measure"]
    taken = {"kind"} | {column.name for column in COLUMNS}
    for column in declared:
        if column.name in taken:
            raise ConfigError(
                f"the scan policy declares the column {column.name!r}, but rows already have a column of "
                "that name. Give it another name."
            )
        taken.add(column.name)
    table = [replace(c, words=(*c.words, *words)) if c.name == "measure" else c for c in COLUMNS]
    return (*table, *declared)
