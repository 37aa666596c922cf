"""Tables of runs with several processes: codecs compared, over time, and with published numbers.

Published: ResNet-110 on CIFAR-10, 10 GPU workers and a parameter server, 25,600 steps, links slowed by tc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Any

import pandas as pd

from experiments.results.methods import over_seeds, page_frame
from pcr_exp.analysis.accuracy import with_seconds
from pcr_exp.analysis.frame import eval_curves
from pcr_exp.analysis.statistics import distinct_seeds, paired_difference, paired_ratio
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.runs.rows import Row

PANEL_KEYS = ["dataset", "label", "model", "world_size", "setting"]
"""Columns that the runs of a panel share; `setting` stands for all but SERIES_KEYS and seed."""

SERIES_KEYS = ["mode", "bandwidth_mbit_per_s", "latency_ms", "epochs", "codec"]

TIMES = ["images_per_s", "network_share", "time_to_target_s"]

MEASURES = [
    *("bits_per_value", "coded_bits", "push_coded_bits", "pull_coded_bits", "wire_bytes_per_update"),
    *("final_score", "best_score", *TIMES),
]

CODEC_NUMBERS = ["sparsity", "fraction", "rank"]

CODEC = ["codec_name", *CODEC_NUMBERS, "zero_run"]
"""A codec and its settings. Each number belongs to one codec: 3LC, top-k or PowerSGD; others have none."""

REFERENCE = "none"
"""The codec that others are compared with: 32-bit floats."""

LOCAL_STEPS = "local_steps"
"""Name of 32-bit floats that are sent only once for two batches, as in the paper."""

_SAME = [
    *(*CODEC, "updates", "target_score", "majority_share", "num_classes", "headline"),
    "target_excluded_because",
]

_PLAIN_BYTES = 4

COMPARED = ("gradients", "network", "seed", "training.epochs", "training.global_batch_size")
KEPT = ("gradients.min_values",)
"""`setting` leaves out COMPARED, except KEPT: which tensors are small, and therefore sent uncompressed."""

_SHARED_SETTINGS = set(GradientsConfig.__dataclass_fields__)
"""Settings that every codec has; others are a codec's own."""

_SERIES = [*PANEL_KEYS, *SERIES_KEYS]

DIRECTIONS = {"push": "pushed", "pull": "pulled"}


def gradient_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with several processes, with SERIES_KEYS, updates and MEASURES.

    * `codec` is its label (`codec_label`), and CODEC what the label is made of; numbers that the codec lacks
      are NaN. `bandwidth_mbit_per_s` is infinite without a throttle.
    * `bits_per_value` covers all values pushed and pulled, and message framing. `coded_bits` covers values
      that went through the codec, NaN if none did. `push_coded_bits` and `pull_coded_bits` split it.
    * `wire_bytes_per_update` is sent by all processes together.
    * `images_per_s` and `network_share` (the share of seconds in which the first process waited for the
      throttled network) are over training and waiting after the first train row, which includes warm-up.
    * TIMES are NaN if no seconds may be reported: neither the network nor storage limited the run.
    """
    team = frame[frame["world_size"] > 1]
    return page_frame(team, _gradient_columns, less=COMPARED, keep=KEPT, times=TIMES)


def gradient_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per PANEL_KEYS x SERIES_KEYS, over seeds, with the speed-up over 32-bit floats.

    Columns: the keys, CODEC, `n` seeds, `num_reached`, `updates`, `target_score`, the chance level, reasons
    for exclusion, and `<measure>_mean`, `_min` and `_max` for each of MEASURES. These are NaN if a seed has
    none; TIMES also over runs of unlike hardware or settings. `ratio` is 32 over the mean of coded_bits.
    Compared by seed with the REFERENCE that differs only in the codec: `speedup`, the mean ratio of
    images_per_s, with `speedup_min` and `_max`, and `difference_*`, the last score minus the reference's.
    They are NaN if REFERENCE was not run; `speedup` also if it may not be reported.
    """
    alike = [key for key in _SERIES if key != "codec"]
    rows = []
    for shared, of_link in frame.groupby(alike, sort=True):
        reference = of_link[of_link["codec"] == REFERENCE]
        for codec, runs in of_link.groupby("codec", sort=True):
            # A sweep over a setting that a codec lacks gives equal runs: each seed counts once.
            row = {**dict(zip(alike, shared, strict=True)), "codec": codec}
            row |= over_seeds(runs, _SAME, MEASURES, TIMES)
            row["num_reached"] = int(distinct_seeds(runs)["epochs_to_target"].notna().sum())
            against = reference.iloc[:0] if codec == REFERENCE else reference
            row |= paired_difference(runs, against, "final_score")
            rows.append(row | paired_ratio(runs, reference, "images_per_s"))
    table = pd.DataFrame(rows)
    return table.assign(ratio=32 / table["coded_bits_mean"]).sort_values(_SERIES, ignore_index=True)


BesideFloats = tuple[pd.Series, pd.DataFrame, pd.DataFrame]
"""A row that names a codec in `case`, its runs, and runs of floats that differ only in the codec."""


def beside_floats(frame: pd.DataFrame, alike: str, chosen: str) -> Iterator[BesideFloats]:
    """Yield one codec after another with the floats to compare it with, for equal model, setting and epochs.

    Args:
        frame: Result of `gradient_frame`.
        alike: Query that selects the runs to compare.
        chosen: Query that selects the codecs.
    """
    several = frame["model"].nunique() > 1
    for (model, *_), runs in frame.query(alike).groupby(["model", "setting", "epochs"], sort=True):
        floats = runs[runs["codec"] == REFERENCE]
        for codec, of_codec in runs.query(chosen).groupby("codec", sort=True):
            case = str(codec).removeprefix("threelc ")
            row = of_codec.iloc[0].copy()
            row["case"] = f"{model}, {case}" if several else case
            yield row, of_codec, floats


def codec_columns(gradients: Mapping[str, Any], num_batches: int = 1) -> dict[str, Any]:
    """Return `codec` and CODEC of a run's group `gradients`; numbers that its codec lacks are NaN.

    Floats that are sent once for two batches of a process are LOCAL_STEPS. For more batches the name ends in
    their number, because nothing is published of them.
    """
    name = str(gradients["name"])
    if name == REFERENCE and num_batches > 1:
        name = LOCAL_STEPS if num_batches == 2 else f"{LOCAL_STEPS}_{num_batches}"
    amounts = {key: gradients.get(key, nan) for key in CODEC_NUMBERS}
    zero_run = gradients.get("zero_run", False)
    steps = f", {num_batches} local steps" if num_batches > 1 else ""
    return {
        "codec": codec_label(gradients) + steps,
        "codec_name": name,
        **amounts,
        "zero_run": zero_run,
    }


def _batches_an_update(config: Mapping[str, Any]) -> int:
    """Return how many batches of each process have their gradients summed and sent once."""
    training = config["training"]
    at_once = training["batch_size"] * config["world_size"]
    return int((training.get("global_batch_size") or at_once) // at_once)


def codec_label(gradients: Mapping[str, Any]) -> str:
    """Return a codec's name with its distinguishing settings: `threelc s=1.75`, `topk 25%`, `int8`.

    For a codec that is not ours, its own settings follow the name.
    """
    name = str(gradients["name"])
    if name == "threelc":
        return f"threelc s={gradients['sparsity']:.2f}" + ("" if gradients["zero_run"] else ", no ZRE")
    if name == "topk":
        return f"topk {100 * gradients['fraction']:g}%"
    if name == "powersgd":
        return f"powersgd rank {gradients['rank']}"
    own = [f"{key}={value}" for key, value in gradients.items() if key not in _SHARED_SETTINGS]
    return " ".join([name, *own])


def coded_bits(row: Row, before: Row | None, directions: Sequence[str]) -> float:
    """Return bits per value that went through the codec between two rows of a run; NaN if none did.

    Args:
        row: The later row.
        before: The earlier row (None: the start of the run).
        directions: `pushed`, `pulled` or both.
    """

    def passed(what: str) -> int:
        keys = [f"{direction}_{what}" for direction in directions]
        return sum(row[key] - (before[key] if before else 0) for key in keys)

    num_plain = passed("plain_values")
    num_values = passed("values") - num_plain
    return 8 * (passed("bytes") - _PLAIN_BYTES * num_plain) / num_values if num_values else nan


def _gradient_columns(run: Mapping[Any, Any]) -> dict[str, Any]:
    config, last = run["config"], run["rows"][-1]
    network = config["network"]
    values = last["pushed_values"] + last["pulled_values"]
    return {
        "mode": config["gradients"]["mode"],
        "bandwidth_mbit_per_s": network["bandwidth_mbit_per_s"] or inf,
        "latency_ms": network["latency_ms"],
        "epochs": config["training"]["epochs"],
        **codec_columns(config["gradients"], _batches_an_update(config)),
        "updates": last["step"],
        "bits_per_value": 8 * (last["pushed_bytes"] + last["pulled_bytes"]) / values,
        "coded_bits": coded_bits(last, None, ["pushed", "pulled"]),
        "push_coded_bits": coded_bits(last, None, ["pushed"]),
        "pull_coded_bits": coded_bits(last, None, ["pulled"]),
        "wire_bytes_per_update": last["bytes_sent"] / last["step"],
        **_pace(run["rows"]),
    }


def _pace(rows: Sequence[Row]) -> dict[str, float]:
    last = rows[-1]
    first = next((row for row in rows if row["kind"] == "train" and row["step"] < last["step"]), None)

    def passed(*keys: str) -> float:
        return sum(last[key] - (first[key] if first else 0) for key in keys)

    busy_s = passed("train_s", "wait_s")
    return {
        "images_per_s": passed("samples_seen") / busy_s,
        "network_share": passed("network_s") / busy_s,
    }


def accuracy_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means of `gradient_frame` over seeds, per epoch: keys, CODEC, n, epoch, seconds, val_score.

    `seconds` covers training and waiting, but not evaluation. Series with a single evaluation are left out,
    and so are runs whose seconds may not be reported.
    """
    timed = frame[frame["timing_excluded_because"] == ""]
    if timed.empty:
        return pd.DataFrame(columns=[*_SERIES, *CODEC, "n", "epoch", "seconds", "val_score"])
    evaluations = with_seconds(eval_curves(timed))[["run_id", "epoch", "seconds", "val_score"]]
    curves = _means(timed, evaluations, ["epoch"], ["seconds", "val_score"])
    lengths = curves.groupby(_SERIES)["epoch"].transform("size")
    return curves[lengths > 1].reset_index(drop=True)


def bits_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds of `gradient_frame` per train row: keys, CODEC, n, step, direction, coded_bits.

    `coded_bits` is per value that went through the codec since the previous train row. Only 3LC's runs with
    zero-run encoding count, and for each s and mode those with the most epochs at the highest bandwidth,
    because links change no bits.
    """
    intervals = []
    for run in frame.to_dict("records"):
        rows = [row for row in run["rows"] if row["kind"] == "train"]
        for before, row in zip([None, *rows[:-1]], rows, strict=True):
            for direction, column in DIRECTIONS.items():
                bits = {"direction": direction, "coded_bits": coded_bits(row, before, [column])}
                intervals.append({"run_id": run["run_id"], "step": row["step"], **bits})
    curves = _means(frame, pd.DataFrame(intervals), ["step", "direction"], ["coded_bits"])
    curves = curves[curves["zero_run"] & curves["coded_bits"].notna()]
    for longest in ("epochs", "bandwidth_mbit_per_s"):
        most = curves.groupby([*PANEL_KEYS, "mode", "codec"])[longest].transform("max")
        curves = curves[curves[longest] == most]
    return curves.reset_index(drop=True)


def _means(frame: pd.DataFrame, rows: pd.DataFrame, by: list[str], measures: list[str]) -> pd.DataFrame:
    frame = frame.assign(n=frame.groupby(_SERIES)["seed"].transform("nunique"))
    facts = [*_SERIES, *CODEC, "n", "target_score", "majority_share", "num_classes", "headline"]
    joined = frame[["run_id", *facts]].merge(rows, on="run_id")
    means = joined.groupby([*facts, *by], sort=True, dropna=False)[measures].mean()
    return means.reset_index()


RECALLED = "recalled, medium"

IN_ABSTRACT = "recalled, medium; 39-107 x and 16-23 x are the abstract's"

SPEEDUP_AT_1_GBIT = 1.5
"""3LC's approximate speed-up; recalled, medium certainty."""


@dataclass(frozen=True, slots=True)
class Published:
    """Numbers of one design of the paper; NaN where none is recalled."""

    bits_per_value: float = nan
    ratio: float = nan
    """32 over `bits_per_value`."""
    speedup_at_10_mbit: float = nan
    """Speed-up over 32-bit floats for as many steps."""
    top1: float = nan
    certainty: str = RECALLED


PUBLISHED = {
    ("none", None): Published(32, 1, 1, 0.9337),
    (LOCAL_STEPS, None): Published(speedup_at_10_mbit=1.92, top1=0.9303),
    ("int8", None): Published(speedup_at_10_mbit=3.62, top1=0.9333),
    ("ternary_stochastic", None): Published(speedup_at_10_mbit=12.3, top1=0.9206),
    ("onebit", None): Published(speedup_at_10_mbit=14.6, top1=0.9321),
    ("topk", 0.25): Published(speedup_at_10_mbit=3.25, top1=0.9340),
    ("topk", 0.05): Published(speedup_at_10_mbit=8.98, top1=0.9287),
    ("threelc", 1.00): Published(0.812, 39.4, 15.9, 0.9332, IN_ABSTRACT),
    ("threelc", 1.50): Published(0.451, 70.9, 20.9, 0.9329),
    ("threelc", 1.75): Published(0.298, 107, 22.8, 0.9351, IN_ABSTRACT),
    ("threelc", 1.90): Published(0.200, 160, 22.8, 0.9310),
}
"""By codec and its number: the share that top-k sends, or 3LC's s."""

WITHOUT_ZERO_RUNS = Published(1.60, 20.0)
"""3LC without zero-run encoding, at every s."""


def published(codec: Mapping[Any, Any]) -> Published:
    """Return the paper's numbers for a row's codec (columns CODEC); NaN and `-` if there are none."""
    if codec["codec_name"] == "threelc" and not codec["zero_run"]:
        return WITHOUT_ZERO_RUNS
    numbers = (codec[key] for key in CODEC_NUMBERS)
    number = next((value for value in numbers if not isnan(value)), None)
    return PUBLISHED.get((codec["codec_name"], number), Published(certainty="-"))
