"""Runs of several processes as a table, and side by side: what each codec sent, and how fast it trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.read_runs import Run
from pcr_exp.analysis.runs_table import time_to_accuracy
from pcr_exp.analysis.summary import spread
from pcr_exp.config.records import key_of
from pcr_exp.runs.identity import scientific_part
from pcr_exp.runs.rows import Row

PANEL_KEYS = ["dataset", "label", "model", "world_size", "setting"]
"""What runs share that are drawn together; `setting` stands for all that SERIES_KEYS and seed do not name."""
SERIES_KEYS = ["mode", "bandwidth_mbit_per_s", "latency_ms", "epochs", "codec"]
MEASURES = [
    *("bits_per_value", "coded_bits", "push_coded_bits", "pull_coded_bits"),
    *("wire_bytes_per_update", "images_per_s", "network_share", "best_top1", "time_to_target_s"),
]
REFERENCE = "none"
"""The codec that others are compared with: 32-bit floats."""
_COLUMNS = [
    *("run_id", *PANEL_KEYS, *SERIES_KEYS, "sparsity", "zero_run", "seed", "updates", "target_top1"),
    *MEASURES,
]
_PLAIN_BYTES = 4


def gradient_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run of several processes: PANEL_KEYS, SERIES_KEYS, seed, target_top1, updates, MEASURES.

    * `codec`: as `codec_name` says it. `bandwidth_mbit_per_s` is infinite without a throttle. `sparsity` is
      NaN but for threelc.
    * `bits_per_value`: of all values, pushed and pulled, what frames messages included; `coded_bits`: of
      those that went through the codec, NaN if none did; and the same of pushes and of pulls alone.
    * `wire_bytes_per_update`: sent by all processes together.
    * `images_per_s` and `network_share` (of the seconds, those that the first process waited for the
      throttled network): over training and waiting after the first train row, which has the warming up.
    """
    return pd.DataFrame([_frame_row(run) for run in team_runs(runs)], columns=_COLUMNS)


def team_runs(runs: Sequence[Run]) -> list[Run]:
    """Those of several processes."""
    return [run for run in runs if run.config.get("world_size", 1) > 1]


def gradient_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per PANEL_KEYS x SERIES_KEYS, over seeds, with the speed-up over 32-bit floats.

    Columns: the keys, `sparsity`, `zero_run`, `n` seeds, `num_reached`, `updates`, `target_top1`;
    `<measure>_mean`, `_min` and `_max` for each of MEASURES, NaN where a seed has none; `ratio`: 32 over the
    mean of coded_bits; `speedup`: mean images_per_s over that of the REFERENCE that differs in the codec
    alone, NaN if it was not run.
    """
    keys = [*PANEL_KEYS, *SERIES_KEYS]
    rows = [
        {**dict(zip(keys, key, strict=True)), **_over_seeds(series)}
        for key, series in frame.groupby(keys, sort=True)
    ]
    table = pd.DataFrame(rows)
    alike = [key for key in keys if key != "codec"]
    references = table[table["codec"] == REFERENCE].set_index(alike)["images_per_s_mean"].to_dict()
    pace = table.set_index(alike).index.map(lambda key: references.get(key, math.nan)).to_numpy(float)
    return table.assign(ratio=32 / table["coded_bits_mean"], speedup=table["images_per_s_mean"] / pace)


def codec_name(gradients: Mapping[str, Any]) -> str:
    """A codec with the settings that tell it from its like: `threelc s=1.75`, `topk 25%`, `int8`."""
    name = str(gradients["name"])
    if name == "threelc":
        return f"threelc s={gradients['sparsity']:.2f}" + ("" if gradients["zero_run"] else ", no ZRE")
    if name == "topk":
        return f"topk {100 * gradients['fraction']:g}%"
    return f"powersgd rank {gradients['rank']}" if name == "powersgd" else name


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


def _frame_row(run: Run) -> dict[str, Any]:
    manifest, config, last = run.manifest, run.config, run.rows[-1]
    gradients, network = config["gradients"], config["network"]
    is_threelc = gradients["name"] == "threelc"
    values = last["pushed_values"] + last["pulled_values"]
    return {
        "run_id": manifest.run_id,
        "dataset": manifest.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "world_size": config["world_size"],
        "setting": _setting(config),
        "mode": gradients["mode"],
        "bandwidth_mbit_per_s": network["bandwidth_mbit_per_s"] or math.inf,
        "latency_ms": network["latency_ms"],
        "epochs": config["training"]["epochs"],
        "codec": codec_name(gradients),
        "sparsity": gradients["sparsity"] if is_threelc else math.nan,
        "zero_run": is_threelc and gradients["zero_run"],
        "seed": manifest.seed,
        "updates": last["step"],
        "target_top1": manifest.target_top1,
        "bits_per_value": 8 * (last["pushed_bytes"] + last["pulled_bytes"]) / values,
        "coded_bits": coded_bits(last, None, ["pushed", "pulled"]),
        "push_coded_bits": coded_bits(last, None, ["pushed"]),
        "pull_coded_bits": coded_bits(last, None, ["pulled"]),
        "wire_bytes_per_update": last["bytes_sent"] / last["step"],
        **_pace(run.rows),
        "best_top1": max(row["val_top1"] for row in run.eval_rows),
        "time_to_target_s": time_to_accuracy(run.rows, manifest.target_top1),
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


def _over_seeds(runs: pd.DataFrame) -> dict[str, Any]:
    first = runs.iloc[0]
    row: dict[str, Any] = {
        "sparsity": first["sparsity"],
        "zero_run": first["zero_run"],
        # A sweep over what a codec does not have gives equal runs.
        "n": runs["seed"].nunique(),
        "num_reached": int(runs["time_to_target_s"].notna().groupby(runs["seed"]).any().sum()),
        "updates": first["updates"],
        "target_top1": first["target_top1"],
    }
    return row | spread(runs, MEASURES)


def _setting(config: Mapping[str, Any]) -> str:
    """Eight hex digits of what SERIES_KEYS, seed and target do not name."""
    part = {key: value for key, value in scientific_part(config).items() if key not in ("network", "seed")}
    part["gradients"] = {"min_values": config["gradients"]["min_values"]}
    for group, named in {"dataset": "target_top1", "training": "epochs"}.items():
        part[group] = {key: value for key, value in part[group].items() if key != named}
    return key_of(part)
