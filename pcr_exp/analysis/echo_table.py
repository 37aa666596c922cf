"""Echoed runs as a table, and side by side: what each echo reached with how many fresh examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.read_runs import Run
from pcr_exp.analysis.runs_table import NEVER, time_to_accuracy
from pcr_exp.analysis.summary import spread
from pcr_exp.config.echo import EchoConfig
from pcr_exp.config.records import key_of
from pcr_exp.runs.identity import scientific_part
from pcr_exp.runs.rows import Row

BASELINE = "baseline"
PANEL_KEYS = ["dataset", "label", "model", "storage", "setting"]
"""What runs share that are drawn together; `setting` stands for all that SERIES_KEYS and seed do not name."""
SERIES_KEYS = ["scan", "variant", "factor", "buffer", "repeat_groups", "batch_size", "epochs"]
MEASURES = [
    *("fresh_to_target", "bytes_to_target", "time_to_target_s", "best_top1", "s_per_fresh"),
    *("upstream_s_per_sample", "downstream_s_per_sample", "upstream_ratio"),
]
_NAMED = ("echo", "scan", "seed")


def echo_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run: PANEL_KEYS, SERIES_KEYS, learning_rate, seed, target_top1, fresh, MEASURES.

    `variant` is `baseline` where nothing is repeated, whatever its buffer. `fresh`: fresh examples of the
    whole run. `fresh_to_target`, `bytes_to_target` (of records), `time_to_target_s` (training and waiting):
    at the first evaluation that reaches the target, NaN if none does. `s_per_fresh`: seconds of training and
    waiting per fresh example. The last three: as the run's last row says; NaN in runs from before they were
    measured.
    """
    columns = [*("run_id", *PANEL_KEYS, *SERIES_KEYS, "learning_rate", "seed", "target_top1", "fresh")]
    return pd.DataFrame([_frame_row(run) for run in runs], columns=[*columns, *MEASURES])


def tuned(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per PANEL_KEYS x SERIES_KEYS, over seeds, each at the best of the learning rates it ran at.

    The best is the one that most seeds reach the target with, then the one with the fewest fresh examples to
    it (`by="fresh_to_target"`); or the one with the highest accuracy (`by="best_top1"`). It is chosen on the
    runs that are shown, as in Choi et al. 2019: so all are flattered alike, if all had the same choice.
    `num_rates` says how many there were.

    Columns: the keys, `learning_rate`, `num_rates`, `n` seeds, `num_reached`, `target_top1`, `fresh`;
    `<measure>_mean`, `_min` and `_max` for each of MEASURES, NaN where a seed has none.
    """
    rows = []
    for key, series in frame.groupby([*PANEL_KEYS, *SERIES_KEYS], sort=True):
        rates = [_over_seeds(rate) for _, rate in series.groupby("learning_rate")]
        best = max(rates, key=lambda rate: _merit(rate, by))
        rows.append(
            {**dict(zip([*PANEL_KEYS, *SERIES_KEYS], key, strict=True)), "num_rates": len(rates), **best}
        )
    return pd.DataFrame(rows)


def _merit(rate: Mapping[str, Any], by: str) -> tuple[float, float]:
    if by == "best_top1":
        return rate["best_top1_mean"], 0.0
    mean = rate["fresh_to_target_mean"]
    return rate["num_reached"], rate["best_top1_mean"] if pd.isna(mean) else -mean


def _over_seeds(runs: pd.DataFrame) -> dict[str, Any]:
    first = runs.iloc[0]
    row: dict[str, Any] = {
        "learning_rate": first["learning_rate"],
        "n": len(runs),
        "num_reached": int(runs["fresh_to_target"].notna().sum()),
        "target_top1": first["target_top1"],
        "fresh": first["fresh"],
    }
    return row | spread(runs, MEASURES)


def _frame_row(run: Run) -> dict[str, Any]:
    manifest, config, last = run.manifest, run.config, run.rows[-1]
    echo = {**_no_echo(), **config.get("echo", {})}
    reached = _first_reached(run, manifest.target_top1)
    return {
        "run_id": manifest.run_id,
        "dataset": manifest.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "storage": config["storage"]["name"],
        "setting": _setting(config),
        "scan": config["scan"]["name"],
        "variant": BASELINE if echo["factor"] == 1 else echo["name"],
        "factor": float(echo["factor"]),
        "buffer": echo["buffer"],
        "repeat_groups": " ".join(map(str, echo["repeat_groups"])),
        "batch_size": config["training"]["batch_size"],
        "epochs": config["training"]["epochs"],
        "learning_rate": config["training"]["learning_rate"],
        "seed": manifest.seed,
        "target_top1": manifest.target_top1,
        "fresh": last["samples_seen"],
        "fresh_to_target": reached["samples_seen"] if reached else NEVER,
        "bytes_to_target": reached["record_bytes"] if reached else NEVER,
        "time_to_target_s": time_to_accuracy(run.rows, manifest.target_top1),
        "best_top1": max(row["val_top1"] for row in run.eval_rows),
        "s_per_fresh": (last["train_s"] + last["wait_s"]) / last["samples_seen"],
        **{measure: last.get(measure) for measure in MEASURES[-3:]},
    }


def _first_reached(run: Run, target_top1: float) -> Row | None:
    return next((row for row in run.eval_rows if row["val_top1"] >= target_top1), None)


def _no_echo() -> dict[str, Any]:
    none = EchoConfig()
    return {"name": none.name, "factor": none.factor, "buffer": none.buffer, "repeat_groups": []}


def _setting(config: Mapping[str, Any]) -> str:
    """Eight hex digits of what SERIES_KEYS, learning rate, seed and target do not name."""
    part = {key: value for key, value in scientific_part(config).items() if key not in _NAMED}
    for group, keys in {
        "dataset": ("target_top1",),
        "training": ("batch_size", "epochs", "learning_rate"),
    }.items():
        part[group] = {key: value for key, value in part[group].items() if key not in keys}
    return key_of(part)
