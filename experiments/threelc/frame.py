"""Runs of several processes as tables: codecs side by side, over time, and beside published numbers.

ResNet-110 on CIFAR-10, 10 GPU workers and a parameter server, 25,600 steps, links slowed by tc.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import pandas as pd

from experiments.results.methods import over_seeds, page_frame
from pcr_exp.analysis.frame import seconds_of
from pcr_exp.analysis.runs import evaluations_at
from pcr_exp.analysis.statistics import distinct_seeds, paired_difference, paired_ratio
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.runs.rows import Row

PANEL_KEYS = ["dataset", "label", "model", "world_size", "setting"]
"""What runs share that are drawn together; `setting` stands for all that SERIES_KEYS and seed do not name."""

SERIES_KEYS = ["mode", "bandwidth_mbit_per_s", "latency_ms", "epochs", "codec"]

TIMES = ["images_per_s", "network_share", "time_to_target_s"]

MEASURES = [
    *("bits_per_value", "coded_bits", "push_coded_bits", "pull_coded_bits", "wire_bytes_per_update"),
    *("final_score", "best_score", *TIMES),
]

CODEC = ["codec_name", "sparsity", "fraction", "rank", "zero_run"]
"""A codec and the number that tells it from its like, which only one of 3LC, top-k and PowerSGD has."""

_AMOUNTS = {"threelc": "sparsity", "topk": "fraction", "powersgd": "rank"}

REFERENCE = "none"
"""The codec that others are compared with: 32-bit floats."""

LOCAL_STEPS = "local_steps"
"""The name of floats that are sent after every second batch alone, say."""

_SAME = [
    *(*CODEC, "updates", "target_score", "majority_share", "num_classes", "headline"),
    "target_excluded_because",
]

_PLAIN_BYTES = 4

COMPARED = ("gradients", "network", "seed", "training.epochs", "training.global_batch_size")
KEPT = ("gradients.min_values",)
"""What `setting` does not stand for; of the codec it has but which tensors are small and sent plain."""

# Runs from before each codec had settings of its own have those of all.
_OUR_SETTINGS = {*GradientsConfig.__dataclass_fields__, *_AMOUNTS.values(), "zero_run"}

_SERIES = [*PANEL_KEYS, *SERIES_KEYS]

DIRECTIONS = {"push": "pushed", "pull": "pulled"}


def gradient_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the frame of runs that are of several processes, with SERIES_KEYS, updates and MEASURES.

    * `codec`: its label, as `codec_label` says it; CODEC: what the label is made of, numbers NaN where the
      codec has none. `bandwidth_mbit_per_s` is infinite without a throttle.
    * `bits_per_value`: of all values, pushed and pulled, what frames messages included; `coded_bits`: of
      those that went through the codec, NaN if none did; and the same of pushes and of pulls alone.
    * `wire_bytes_per_update`: sent by all processes together.
    * `images_per_s` and `network_share` (of the seconds, those that the first process waited for the
      throttled network): over training and waiting after the first train row, which has the warming up.
    * TIMES are NaN where no seconds may be said: neither the network nor storage limited the run.
    """
    team = frame[frame["world_size"] > 1]
    return page_frame(team, _gradient_columns, less=COMPARED, keep=KEPT, times=TIMES)


def gradient_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per PANEL_KEYS x SERIES_KEYS, over seeds, with the speed-up over 32-bit floats.

    Columns: the keys, CODEC, `n` seeds, `num_reached`, `updates`, `target_score`, what
    guessing reaches, why nothing may be said; `<measure>_mean`, `_min` and `_max` for each of MEASURES, NaN
    where a seed has none, TIMES also over runs of unlike hardware or settings; `ratio`: 32 over the mean of
    coded_bits. Beside the REFERENCE that differs in the codec alone, NaN if it was not run or it may not be
    said: `speedup`, the mean over seeds of both of images_per_s over that of the same seed, with
    `speedup_min` and `_max`; `difference_*`, the last score less that of the same seed.
    """
    keys = [*PANEL_KEYS, *SERIES_KEYS]
    alike = [key for key in keys if key != "codec"]
    rows = []
    for shared, of_link in frame.groupby(alike, sort=True):
        reference = of_link[of_link["codec"] == REFERENCE]
        for codec, runs in of_link.groupby("codec", sort=True):
            # A sweep over what a codec does not have gives equal runs: each seed counts once.
            row = {**dict(zip(alike, shared, strict=True)), "codec": codec}
            row |= over_seeds(runs, _SAME, MEASURES, TIMES)
            row["num_reached"] = int(distinct_seeds(runs)["epochs_to_target"].notna().sum())
            against = reference.iloc[:0] if codec == REFERENCE else reference
            row |= paired_difference(runs, against, "final_score")
            rows.append(row | paired_ratio(runs, reference, "images_per_s"))
    table = pd.DataFrame(rows)
    return table.assign(ratio=32 / table["coded_bits_mean"]).sort_values(keys, ignore_index=True)


BesideFloats = tuple[pd.Series, pd.DataFrame, pd.DataFrame]
"""A row that names a codec in `case`, its runs, and those of floats that differ in nothing else."""


def beside_floats(frame: pd.DataFrame, alike: str, chosen: str) -> Iterator[BesideFloats]:
    """Codecs one after the other, each on one link, with as many updates.

    Args:
        frame: As `gradient_frame` makes it.
        alike: A query: which runs are compared.
        chosen: Another: which codecs.
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
    """`codec` and CODEC of a run's group `gradients`: numbers that mean nothing to its codec are NaN.

    Floats that are sent once for several batches of a process are LOCAL_STEPS.
    """
    name = str(gradients["name"])
    amounts = {key: gradients[key] if _AMOUNTS.get(name) == key else math.nan for key in _AMOUNTS.values()}
    zero_run = name == "threelc" and gradients["zero_run"]
    steps = f", {num_batches} local steps" if num_batches > 1 else ""
    return {
        "codec": codec_label(gradients) + steps,
        "codec_name": LOCAL_STEPS if steps and name == REFERENCE else name,
        **amounts,
        "zero_run": zero_run,
    }


def _batches_an_update(config: Mapping[str, Any]) -> int:
    """Batches of each process whose gradients are added up, and sent once."""
    training = config["training"]
    at_once = training["batch_size"] * config["world_size"]
    return int((training.get("global_batch_size") or at_once) // at_once)


def codec_label(gradients: Mapping[str, Any]) -> str:
    """A codec with the settings that tell it from its like: `threelc s=1.75`, `topk 25%`, `int8`.

    A codec that is not ours has its own settings behind its name.
    """
    name = str(gradients["name"])
    if name == "threelc":
        return f"threelc s={gradients['sparsity']:.2f}" + ("" if gradients["zero_run"] else ", no ZRE")
    if name == "topk":
        return f"topk {100 * gradients['fraction']:g}%"
    if name == "powersgd":
        return f"powersgd rank {gradients['rank']}"
    own = [f"{key}={value}" for key, value in gradients.items() if key not in _OUR_SETTINGS]
    return " ".join([name, *own])


def coded_bits(row: Row, before: Row | None, directions: Sequence[str]) -> float:
    """Bits per value that went through the codec, between two rows of a run.

    Args:
        row: At the end.
        before: At the beginning; None is the start of the run.
        directions: `pushed`, `pulled`.
    """

    def passed(what: str) -> int:
        keys = [f"{direction}_{what}" for direction in directions]
        return sum(row[key] - (before[key] if before else 0) for key in keys)

    num_plain = passed("plain_values")
    num_values = passed("values") - num_plain
    return 8 * (passed("bytes") - _PLAIN_BYTES * num_plain) / num_values if num_values else math.nan


def _gradient_columns(run: Mapping[Any, Any]) -> dict[str, Any]:
    config, last = run["config"], run["rows"][-1]
    network = config["network"]
    values = last["pushed_values"] + last["pulled_values"]
    return {
        "mode": config["gradients"]["mode"],
        "bandwidth_mbit_per_s": network["bandwidth_mbit_per_s"] or math.inf,
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
    """Means of `gradient_frame` over seeds, per epoch: keys, CODEC, n, epoch, seconds, val_score.

    `seconds` are of training and waiting; evaluation is off the clock. Series with one evaluation are no
    curves, and left out, as are runs whose seconds may not be said.
    """
    timed = frame[frame["timing_excluded_because"] == ""]
    if timed.empty:
        return pd.DataFrame(columns=[*_SERIES, *CODEC, "n", "epoch", "seconds", "val_score"])
    evaluations = [
        {
            "run_id": run["run_id"],
            "epoch": row["epoch"],
            "seconds": seconds_of(row),
            "val_score": row["val_score"],
        }
        for run in timed.to_dict("records")
        for row in evaluations_at("full", run["rows"])
    ]
    curves = _means(timed, evaluations, ["epoch"], ["seconds", "val_score"])
    lengths = curves.groupby(_SERIES)["epoch"].transform("size")
    return curves[lengths > 1].reset_index(drop=True)


def bits_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Means of `gradient_frame` over seeds, per train row: keys, CODEC, n, step, direction, coded_bits.

    Bits per value that went through the codec since the train row before. Only 3LC's runs with zero runs
    shortened, and for each s and mode those with the most updates, at one bandwidth: links change no bits.
    """
    intervals = []
    for run in frame.to_dict("records"):
        rows = [row for row in run["rows"] if row["kind"] == "train"]
        for before, row in zip([None, *rows[:-1]], rows, strict=True):
            for direction, column in DIRECTIONS.items():
                bits = {"direction": direction, "coded_bits": coded_bits(row, before, [column])}
                intervals.append({"run_id": run["run_id"], "step": row["step"], **bits})
    curves = _means(frame, intervals, ["step", "direction"], ["coded_bits"])
    curves = curves[curves["zero_run"] & curves["coded_bits"].notna()]
    for longest in ("epochs", "bandwidth_mbit_per_s"):
        most = curves.groupby([*PANEL_KEYS, "mode", "codec"])[longest].transform("max")
        curves = curves[curves[longest] == most]
    return curves.reset_index(drop=True)


def _means(frame: pd.DataFrame, rows: list[dict], by: list[str], measures: list[str]) -> pd.DataFrame:
    frame = frame.assign(n=frame.groupby(_SERIES)["seed"].transform("nunique"))
    facts = [*_SERIES, *CODEC, "n", "target_score", "majority_share", "num_classes", "headline"]
    joined = frame[["run_id", *facts]].merge(pd.DataFrame(rows), on="run_id")
    means = joined.groupby([*facts, *by], sort=True, dropna=False)[measures].mean()
    return means.reset_index()


REMEMBERED = "remembered, medium"

IN_ABSTRACT = "remembered, medium; 39-107 x and 16-23 x are the abstract's"

SPEEDUP_AT_1_GBIT = 1.5
"""3LC's, about; remembered, medium."""


@dataclass(frozen=True, slots=True)
class Published:
    """One design of the paper; NaN where nothing is remembered."""

    bits_per_value: float = nan
    ratio: float = nan
    """32 bits over them."""
    speedup_at_10_mbit: float = nan
    """Over 32-bit floats, for as many steps."""
    top1: float = nan
    certainty: str = REMEMBERED


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
"""By codec and its number: the share that top-k sends, 3LC's s."""

WITHOUT_ZERO_RUNS = Published(1.60, 20.0)
"""3LC at every s."""


def published(codec: Mapping[Any, Any]) -> Published:
    """What the paper says of a row's codec (columns CODEC); NaN and `-` if nothing."""
    if codec["codec_name"] == "threelc" and not codec["zero_run"]:
        return WITHOUT_ZERO_RUNS
    numbers = (codec[key] for key in ("sparsity", "fraction", "rank"))
    number = next((value for value in numbers if not isnan(value)), None)
    return PUBLISHED.get((codec["codec_name"], number), Published(certainty="-"))
