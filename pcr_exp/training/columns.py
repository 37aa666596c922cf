"""Every column of a run's rows, said once.

Training makes the rows, so the table stands here. The validator, the check that counters grow, the sum over
processes, the comparison of a resumed run with an uninterrupted one, and packed result sets all follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pcr_exp.config.training import EVAL_GROUPS
from pcr_exp.errors import ConfigError
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

MEASURES = ("given", "ms_ssim", "cosine", "train_loss", "tune_loss", "val_loss", "images_per_s", "loss_bound")
"""What a policy's scores can be: `given` says the configuration; `val_loss` was there before a tune split."""


def _seconds(name: str, meaning: str) -> Column:
    return Column(name=name, unit="s", meaning=meaning, grows=True, deterministic=False)


def _traffic(name: str, unit: str, meaning: str, *, deterministic: bool = True) -> Column:
    return Column(
        name=name,
        unit=unit,
        meaning=meaning,
        kind="count",
        grows=True,
        deterministic=deterministic,
        combine="sum",
        presence="team",
    )


COLUMNS: tuple[Column, ...] = (
    Column(
        name="epoch",
        unit="epochs",
        meaning="epoch of the last update, from 1; in eval and policy rows the epochs completed",
        kind="count",
        low=1,
        zero_before_training=True,
    ),
    Column(
        name="step",
        unit="updates",
        meaning="updates done",
        kind="count",
        low=1,
        zero_before_training=True,
        grows=True,
    ),
    Column(
        name="samples_seen",
        unit="images",
        meaning="fresh images trained on",
        kind="count",
        low=1,
        zero_before_training=True,
        grows=True,
        combine="sum",
    ),
    Column(
        name="samples_trained",
        unit="images",
        meaning="images of all updates, repeats of data echoing included",
        kind="count",
        grows=True,
        combine="sum",
        presence="optional",
    ),
    _seconds("train_s", "time spent in updates"),
    _seconds("wait_s", "time spent waiting for data"),
    _seconds("probe_s", "time spent in a scan policy's probes"),
    _seconds("eval_s", "time spent in evaluation"),
    _seconds("other_s", "time spent on files and trackers"),
    _seconds("wall_s", "time since the run began, over all its sessions: the sum of the other clocks"),
    Column(
        name="scan_group",
        unit="scan group",
        meaning="scan group of the last batch; 0: of the baseline, which has none, and before training",
        kind="count",
    ),
    Column(
        name="record_bytes",
        unit="bytes",
        meaning="size of the records, at the groups read, that the trained images came from",
        kind="count",
        grows=True,
        combine="sum",
    ),
    Column(
        name="full_bytes",
        unit="bytes",
        meaning="what record_bytes would be, had every record been read with all its scan groups",
        kind="count",
        grows=True,
        combine="sum",
        presence="optional",
    ),
    *STORAGE_COLUMNS,
    Column(name="learning_rate", unit="", meaning="learning rate of the last update"),
    Column(
        name="kept_bytes_mean",
        unit="bytes",
        meaning="mean over sampled updates of the bytes that waited for backward, in the first process",
        nullable=True,
        presence="optional",
    ),
    Column(
        name="kept_bytes_max",
        unit="bytes",
        meaning="largest of them",
        kind="count",
        nullable=True,
        presence="optional",
    ),
    Column(
        name="upstream_s_per_sample",
        unit="s/image",
        meaning="time per fresh image of the stages before the echo",
        nullable=True,
        deterministic=False,
        presence="optional",
    ),
    Column(
        name="downstream_s_per_sample",
        unit="s/image",
        meaning="time per image trained on of the stages after the echo",
        nullable=True,
        deterministic=False,
        presence="optional",
    ),
    Column(
        name="upstream_ratio",
        unit="",
        meaning="R of the data echoing paper: upstream over downstream time",
        nullable=True,
        deterministic=False,
        presence="optional",
    ),
    Column(
        name="train_loss",
        unit="nats",
        meaning="mean loss per image since the last train row; in eval rows over the epoch",
        rows=("train", "eval"),
    ),
    Column(
        name="images_per_s",
        unit="images/s",
        meaning="fresh images per second of train and wait time, since the last train row",
        rows=("train",),
        deterministic=False,
        combine="sum",
    ),
    Column(
        name="storage_mib_per_s",
        unit="MiB/s",
        meaning="bytes read per second of wall time less evaluation, since the last train row",
        rows=("train",),
        deterministic=False,
        combine="sum",
    ),
    Column(
        name="wait_share",
        unit="",
        meaning="wait over train and wait time, since the last train row",
        rows=("train",),
        kind="share",
        deterministic=False,
    ),
    Column(
        name="others_cpu_share",
        unit="",
        meaning="share of the CPU time that the run could have had and others took, since the last train row "
        "that has it; null: less than a second ago, or not known",
        rows=("train",),
        kind="share",
        nullable=True,
        deterministic=False,
        presence="optional",
    ),
    Column(
        name="val_loss",
        unit="nats",
        meaning="mean cross-entropy per evaluated image, without label smoothing",
        rows=("eval",),
    ),
    Column(
        name="val_top1",
        unit="",
        meaning="share of evaluated images whose class is the highest score",
        rows=("eval",),
        kind="share",
        presence="optional",
    ),
    Column(
        name="val_top5",
        unit="",
        meaning="share whose class is among the five highest; null: fewer than 5 classes",
        rows=("eval",),
        kind="share",
        nullable=True,
        presence="optional",
    ),
    Column(
        name="eval_group",
        unit="",
        meaning="how the images were read: in full; the same as for the last update, up to scan_group; or in "
        "full, with BatchNorm statistics of training images in full (renewed)",
        rows=("eval",),
        kind="word",
        words=EVAL_GROUPS,
    ),
    Column(name="num_val", unit="images", meaning="evaluated images", rows=("eval",), kind="count", low=1),
    Column(
        name="group",
        unit="scan group",
        meaning="chosen for the records that are read from here on",
        rows=("policy",),
        kind="count",
        low=1,
    ),
    Column(
        name="measure", unit="", meaning="what the scores are", rows=("policy",), kind="word", words=MEASURES
    ),
    Column(
        name="scores",
        unit="",
        meaning="scores of the candidates that were compared, by scan group",
        rows=("policy",),
        kind="scores",
    ),
    Column(
        name="bytes_saved",
        unit="bytes",
        meaning="all scan groups of the records trained on, less record_bytes",
        rows=("policy",),
        kind="count",
        combine="sum",
    ),
    # DDP cuts its buckets only after the first step, which therefore sends one larger message: a resumed run
    # sends another one.
    _traffic("bytes_sent", "bytes", "gradients and model changes sent by all processes", deterministic=False),
    _traffic("pushed_values", "values", "gradient values that all processes encoded"),
    _traffic("pushed_bytes", "bytes", "size of the messages with them, each counted once"),
    _traffic("pushed_plain_values", "values", "those of small tensors, sent as float32 past the codec"),
    _traffic("pulled_values", "values", "values that processes decoded of a server's messages"),
    _traffic("pulled_bytes", "bytes", "size of those messages"),
    _traffic("pulled_plain_values", "values", "those of small tensors, sent as float32 past the codec"),
    Column(
        name="network_s",
        unit="s",
        meaning="part of train_s that the first process waited for the throttled network",
        grows=True,
        deterministic=False,
        presence="team",
    ),
)
"""The table, in the order of a packed set's columns."""

TRAFFIC = tuple(column.name for column in COLUMNS if column.presence == "team" and column.combine == "sum")
"""What `distributed.wire.Traffic` counts, name by name."""


def metric_column(name: str) -> Column:
    """Return the column of another metric of a task (`Task.metrics`); eval rows have it as `val_<metric>`."""
    return Column(name=name, unit="", meaning="metric of the task", rows=("eval",), kind="metric")


def with_declared(declared: Sequence[Column]) -> tuple[Column, ...]:
    """Return the table with the columns that a run's scan policy declares.

    A declared column called `measure` adds its words to what `measure` may be.

    Raises:
        ConfigError: two columns have one name.
    """
    words = [word for column in declared if column.name == "measure" for word in column.words]
    declared = [column for column in declared if column.name != "measure"]
    taken = {"kind"} | {column.name for column in COLUMNS}
    for column in declared:
        if column.name in taken:
            raise ConfigError(
                f"the scan policy declares the column {column.name!r}, and rows have one of that name "
                "already. Give it another name."
            )
        taken.add(column.name)
    table = [replace(c, words=(*c.words, *words)) if c.name == "measure" else c for c in COLUMNS]
    return (*table, *declared)
