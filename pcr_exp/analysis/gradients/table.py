"""Runs of several processes as a table, and side by side: what each codec sent, and how fast it trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.permitted import FACTS, UNLIKE, distinct, facts_of, may_say_speedup
from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.runs_table import accuracy_of, scientific_setting
from pcr_exp.analysis.core.statistics import NEVER, distinct_seeds, paired_difference, spread
from pcr_exp.analysis.core.time_to_target import reached_of
from pcr_exp.config.records import key_of
from pcr_exp.runs.rows import Row

PANEL_KEYS = ["dataset", "label", "model", "world_size", "setting"]
"""What runs share that are drawn together; `setting` stands for all that SERIES_KEYS and seed do not name."""
SERIES_KEYS = ["mode", "bandwidth_mbit_per_s", "latency_ms", "epochs", "codec"]
TIMES = ["images_per_s", "network_share", "time_to_target_s"]
MEASURES = [
    *("bits_per_value", "coded_bits", "push_coded_bits", "pull_coded_bits", "wire_bytes_per_update"),
    *("final_top1", "best_top1", *TIMES),
]
REFERENCE = "none"
"""The codec that others are compared with: 32-bit floats."""
_COLUMNS = [
    *("run_id", *PANEL_KEYS, *SERIES_KEYS, "sparsity", "zero_run", "seed", "updates", "target_top1"),
    *("epochs_to_target", *FACTS, *MEASURES),
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
    * TIMES are NaN where no seconds may be said: neither the network nor storage limited the run.
    """
    frame = pd.DataFrame([_frame_row(run) for run in team_runs(runs)], columns=_COLUMNS)
    frame.loc[frame["no_seconds"] != "", TIMES] = NEVER
    return frame


def team_runs(runs: Sequence[Run]) -> list[Run]:
    """Those of several processes."""
    return [run for run in runs if run.config.get("world_size", 1) > 1]


def gradient_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per PANEL_KEYS x SERIES_KEYS, over seeds, with the speed-up over 32-bit floats.

    Columns: the keys, `sparsity`, `zero_run`, `n` seeds, `num_reached`, `updates`, `target_top1`, what
    guessing reaches, why nothing may be said; `<measure>_mean`, `_min` and `_max` for each of MEASURES, NaN
    where a seed has none, TIMES also over runs of unlike hardware or settings; `ratio`: 32 over the mean of
    coded_bits. Beside the REFERENCE that differs in the codec alone, NaN if it was not run or it may not be
    said: `speedup`, the mean over seeds of both of images_per_s over that of the same seed, with
    `speedup_min` and `_max`; `difference_*`, the last top-1 less that of the same seed.
    """
    keys = [*PANEL_KEYS, *SERIES_KEYS]
    alike = [key for key in keys if key != "codec"]
    rows = []
    for shared, of_link in frame.groupby(alike, sort=True):
        reference = of_link[of_link["codec"] == REFERENCE]
        for codec, series in of_link.groupby("codec", sort=True):
            row = {**dict(zip(alike, shared, strict=True)), "codec": codec, **_over_seeds(series)}
            against = reference.iloc[:0] if codec == REFERENCE else reference
            row |= paired_difference(series, against, "final_top1")
            rows.append(row | _speedup(distinct_seeds(series), distinct_seeds(reference)))
    table = pd.DataFrame(rows)
    return table.assign(ratio=32 / table["coded_bits_mean"]).sort_values(keys, ignore_index=True)


def _speedup(runs: pd.DataFrame, reference: pd.DataFrame) -> dict[str, float]:
    if may_say_speedup(runs, reference):
        return dict.fromkeys(("speedup", "speedup_min", "speedup_max"), NEVER)
    ratios = (runs.set_index("seed")["images_per_s"] / reference.set_index("seed")["images_per_s"]).dropna()
    return {"speedup": ratios.mean(), "speedup_min": ratios.min(), "speedup_max": ratios.max()}


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
        "setting": _setting(run),
        "mode": gradients["mode"],
        "bandwidth_mbit_per_s": network["bandwidth_mbit_per_s"] or math.inf,
        "latency_ms": network["latency_ms"],
        "epochs": config["training"]["epochs"],
        "codec": codec_name(gradients),
        "sparsity": gradients["sparsity"] if is_threelc else math.nan,
        "zero_run": is_threelc and gradients["zero_run"],
        "seed": manifest.seed,
        "updates": last["step"],
        "target_top1": manifest.target,
        "bits_per_value": 8 * (last["pushed_bytes"] + last["pulled_bytes"]) / values,
        "coded_bits": coded_bits(last, None, ["pushed", "pulled"]),
        "push_coded_bits": coded_bits(last, None, ["pushed"]),
        "pull_coded_bits": coded_bits(last, None, ["pulled"]),
        "wire_bytes_per_update": last["bytes_sent"] / last["step"],
        **_pace(run.rows),
        **accuracy_of(run),
        **facts_of(run),
        **reached_of(run),
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
    # A sweep over what a codec does not have gives equal runs: each seed counts once.
    seeds = distinct_seeds(runs)
    first = seeds.iloc[0]
    row: dict[str, Any] = {
        **{key: first[key] for key in ("sparsity", "zero_run", "updates", "target_top1")},
        **{key: first[key] for key in ("majority_share", "num_classes", "no_target")},
        "n": len(seeds),
        "num_reached": int(seeds["epochs_to_target"].notna().sum()),
        "no_seconds": " / ".join(distinct(seeds["no_seconds"])),
        "hardware": " / ".join(sorted(set(seeds["hardware"]))),
        **spread(seeds, MEASURES),
    }
    if not row["no_seconds"] and seeds["timing"].nunique() > 1:
        row["no_seconds"] = UNLIKE
        row |= {f"{measure}_{part}": NEVER for measure in TIMES for part in ("mean", "min", "max")}
    return row


def _setting(run: Run) -> str:
    """Eight hex digits of what SERIES_KEYS, seed and target do not name."""
    part = {key: value for key, value in scientific_setting(run).items() if key not in ("network", "seed")}
    part["gradients"] = {"min_values": run.config["gradients"]["min_values"]}
    for group, named in {"dataset": "target_top1", "training": "epochs"}.items():
        part[group] = {key: value for key, value in part[group].items() if key != named}
    return key_of(part)
