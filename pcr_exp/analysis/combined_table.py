"""PCR and its neighbours in every combination: where bytes went, and what time and accuracy that cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from pcr_exp.analysis.read_runs import Run
from pcr_exp.analysis.summary import spread
from pcr_exp.config.activations import ActivationsConfig
from pcr_exp.config.echo import EchoConfig
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.config.network import NetworkConfig
from pcr_exp.config.records import key_of
from pcr_exp.runs.identity import scientific_part

OFF = "all off"
PANEL_KEYS = ["dataset", "label", "model", "storage", "network", "processes", "setting"]
"""What runs share that are compared; `setting` stands for all but NEIGHBOURS, epochs, seed and target."""
NEIGHBOURS = ["scan", "echo", "gradients", "activations"]
PLACES = {"storage": "storage_bytes", "network": "wire_bytes", "memory": "kept_bytes_mean"}
"""Where bytes are saved, and the measure of it."""
MEASURES = [
    *("storage_bytes", "fresh", "repeats", "reused_bytes", "updates"),
    *("pushed_bytes", "pulled_bytes", "wire_bytes", "kept_bytes_mean", "kept_bytes_max"),
    *("seconds", "wait_s", "network_s", "top1"),
]
_NOT_OF_THE_SETTING = (*NEIGHBOURS, "seed")
_DEFAULTS: dict[str, dict[str, Any]] = {
    "echo": asdict(EchoConfig()),
    "gradients": asdict(GradientsConfig()),
    "activations": asdict(ActivationsConfig()),
    "network": asdict(NetworkConfig()),
}


def combined_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run: PANEL_KEYS, NEIGHBOURS, combination, variant, seed, hardware, MEASURES.

    `combination` names what is on; `variant` is a key of all that it stands for. Bytes and examples are those
    of the whole run: `storage_bytes` read; `reused_bytes` of records that the pipeline gave again without
    reading them, repeats at the mean size of fresh examples (NaN where repeats read on); `wire_bytes` sent by
    all processes, `pushed_bytes` and `pulled_bytes` of messages, each counted once. `kept_bytes_*` wait for
    backward in one process, over the updates looked at. `seconds` of training, waiting for data and probes;
    `wait_s` for data and `network_s` for the throttled network are among them. `top1`: of the finished model.
    NaN in runs from before something was measured, and of traffic in runs of one process.
    """
    columns = [*PANEL_KEYS, *NEIGHBOURS, "combination", "variant", "seed", "hardware", *MEASURES]
    return pd.DataFrame([_frame_row(run) for run in runs], columns=columns)


def combined_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per combination, over seeds: where runs differ in `activations`, or in three NEIGHBOURS.

    Columns: PANEL_KEYS, NEIGHBOURS, combination, `n`, hardware; `<measure>_mean`, `_min` and `_max` for each
    of MEASURES; `<place>_share` for each of PLACES: its mean over that of the run with all off, NaN if there
    is none.
    """
    rows = []
    for panel, of_panel in frame.groupby(PANEL_KEYS, sort=True):
        differs = of_panel[NEIGHBOURS].nunique() > 1
        if not (differs["activations"] or differs.sum() >= 3):
            continue
        keys = dict(zip(PANEL_KEYS, panel, strict=True))
        combinations = [_over_seeds(runs) for _, runs in of_panel.groupby(["combination", "variant"])]
        off = next((row for row in combinations if row["combination"] == OFF), None)
        for row in sorted(combinations, key=_order):
            shares = {f"{place}_share": _share(row, off, measure) for place, measure in PLACES.items()}
            rows.append({**keys, **row, **shares})
    return pd.DataFrame(rows)


def _order(row: Mapping[str, Any]) -> tuple[int, list[bool], str]:
    """All off, then each neighbour alone, and so on to all of them."""
    is_off = [not _is_on(key, row[key]) for key in NEIGHBOURS]
    return -sum(is_off), is_off, row["combination"]


def _share(row: Mapping[str, Any], off: Mapping[str, Any] | None, measure: str) -> float:
    whole = off[f"{measure}_mean"] if off else float("nan")
    return row[f"{measure}_mean"] / whole if whole else float("nan")


def _over_seeds(runs: pd.DataFrame) -> dict[str, Any]:
    first = runs.iloc[0]
    row: dict[str, Any] = {key: first[key] for key in (*NEIGHBOURS, "combination")}
    row |= {"n": len(runs), "hardware": " / ".join(sorted(set(runs["hardware"])))}
    return row | spread(runs, MEASURES)


def _frame_row(run: Run) -> dict[str, Any]:
    manifest, last = run.manifest, run.rows[-1]
    config = {**run.config, **{key: {**none, **run.config.get(key, {})} for key, none in _DEFAULTS.items()}}
    neighbours = _neighbours(config)
    on = [name for key, name in neighbours.items() if _is_on(key, name)]
    repeats = last.get("samples_trained", last["samples_seen"]) - last["samples_seen"]
    reused_bytes = repeats * last["record_bytes"] / last["samples_seen"]
    return {
        "dataset": manifest.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "storage": config["storage"]["name"],
        "network": config["network"]["name"],
        "processes": config.get("world_size", 1),
        "setting": _setting(config),
        **neighbours,
        "combination": " + ".join(on) or OFF,
        "variant": key_of({key: config[key] for key in _DEFAULTS} | {"epochs": config["training"]["epochs"]}),
        "seed": manifest.seed,
        "hardware": f"{manifest.gpu or manifest.cpu}, {manifest.num_cores} cores",
        "storage_bytes": last["bytes_read"],
        "fresh": last["samples_seen"],
        "repeats": repeats,
        "reused_bytes": math.nan if config["echo"]["repeat_groups"] else reused_bytes,
        "updates": last["step"],
        "wire_bytes": last.get("bytes_sent"),
        **{key: last.get(key) for key in ("pushed_bytes", "pulled_bytes", "network_s")},
        **{key: last.get(key) for key in ("kept_bytes_mean", "kept_bytes_max")},
        "seconds": last["train_s"] + last["wait_s"] + last["probe_s"],
        "wait_s": last["wait_s"],
        "top1": run.eval_rows[-1]["val_top1"],
    }


def _neighbours(config: Mapping[str, Any]) -> dict[str, str]:
    echo, gradients, activations = config["echo"], config["gradients"], config["activations"]
    server = " server" if gradients["mode"] == "server" else ""
    paper = " paper" if activations["error_model"] == "paper" else ""
    return {
        "scan": config["scan"]["name"].replace("_", " "),
        "echo": "none" if echo["factor"] == 1 else f"echo {echo['factor']:g}x",
        "gradients": gradients["name"] + server,
        "activations": activations["name"].replace("_", " ") + paper,
    }


def _is_on(neighbour: str, name: str) -> bool:
    return name != ("baseline" if neighbour == "scan" else "none")


def _setting(config: Mapping[str, Any]) -> str:
    part = {key: value for key, value in scientific_part(config).items() if key not in _NOT_OF_THE_SETTING}
    for group, key in (("dataset", "target_top1"), ("training", "epochs")):
        part[group] = {name: value for name, value in part[group].items() if name != key}
    return key_of(part)
