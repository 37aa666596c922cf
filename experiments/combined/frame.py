"""PCR and its neighbours in every combination: where bytes went, and what time and accuracy that cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from experiments.results.methods import over_seeds, page_frame
from pcr_exp.analysis.frame import per_setting, seconds_of
from pcr_exp.analysis.statistics import paired_difference, paired_ratio
from pcr_exp.analysis.style import scan_words
from pcr_exp.config.describe import network_label
from pcr_exp.config.related_methods import ActivationsConfig, EchoConfig, GradientsConfig, NetworkConfig
from pcr_exp.system.keys import key_of

OFF = "all off"
PANEL_KEYS = ["dataset", "label", "model", "storage", "network", "processes", "setting"]
"""What runs share that are compared; `setting` stands for all but NEIGHBOURS, epochs, seed and target."""
NEIGHBOURS = ["scan", "echo", "gradients", "activations"]
PLACES = {"storage": "storage_bytes", "network": "wire_bytes", "memory": "kept_bytes_mean"}
"""Where bytes are saved, and the measure of it."""
TIMES = ["seconds", "wait_s", "network_s"]
MEASURES = [
    *("storage_bytes", "fresh", "repeats", "reused_bytes", "updates"),
    *("pushed_bytes", "pulled_bytes", "wire_bytes", "kept_bytes_mean", "kept_bytes_max"),
    *("final_score", "best_score", *TIMES),
]
_COMPARED = (*NEIGHBOURS, "seed", "training.epochs")
_SAME = [*NEIGHBOURS, "combination", "majority_share", "num_classes", "headline"]
_DEFAULTS: dict[str, dict[str, Any]] = {
    "echo": asdict(EchoConfig()),
    "gradients": asdict(GradientsConfig()),
    "activations": asdict(ActivationsConfig()),
    "network": asdict(NetworkConfig()),
}


def combined_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of runs with NEIGHBOURS, combination, variant and MEASURES.

    `combination` names what is on; `variant` is a key of all that it stands for. Bytes and samples are those
    of the whole run: `storage_bytes` read; `reused_bytes` of records that the pipeline gave again without
    reading them, repeats at the mean size of fresh samples (NaN where repeats read on); `wire_bytes` sent by
    all processes, `pushed_bytes` and `pulled_bytes` of messages, each counted once. `kept_bytes_*` wait for
    backward in one process, over the updates looked at. `seconds` of training, waiting for data and probes;
    `wait_s` for data and `network_s` for the throttled network are among them; NaN where no seconds may be
    said. `final_score`: of the finished model. NaN in runs from before something was measured, and of traffic
    in runs of one process.
    """
    return page_frame(frame, _combined_columns, less=_COMPARED, times=TIMES)


def combined_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per combination, over seeds: where runs differ in `activations`, or in three NEIGHBOURS.

    Columns: PANEL_KEYS, NEIGHBOURS, combination, `n`, hardware, what guessing reaches, why no seconds;
    `<measure>_mean`, `_min` and `_max` for each of MEASURES. Beside the runs with all off, NaN if there are
    none: `<place>_share` for each of PLACES, its mean over theirs; `difference_*`, the last score less theirs
    of the same seed; `speedup`, their seconds over its, a mean over the seeds of both, with `speedup_min` and
    `_max`, NaN where it may not be said.
    """
    rows = []
    for _, group, of_panel in per_setting(frame, PANEL_KEYS):
        differs = of_panel[NEIGHBOURS].nunique() > 1
        if not (differs["activations"] or differs.sum() >= 3):
            continue
        combinations = [
            (over_seeds(runs, _SAME, MEASURES, TIMES), runs)
            for _, runs in of_panel.groupby(["combination", "variant"], sort=True)
        ]
        nobody: tuple[None, pd.DataFrame] = (None, of_panel.iloc[:0])
        off, of_off = next((found for found in combinations if found[0]["combination"] == OFF), nobody)
        for row, runs in sorted(combinations, key=lambda found: _order(found[0])):
            shares = {f"{place}_share": _share(row, off, measure) for place, measure in PLACES.items()}
            difference = paired_difference(runs, nobody[1] if row is off else of_off, "final_score")
            rows.append(group | row | shares | difference | paired_ratio(of_off, runs, "seconds"))
    return pd.DataFrame(rows)


def _order(row: Mapping[str, Any]) -> tuple[int, list[bool], str]:
    """All off, then each neighbour alone, and so on to all of them."""
    is_off = [not _is_on(key, row[key]) for key in NEIGHBOURS]
    return -sum(is_off), is_off, row["combination"]


def _share(row: Mapping[str, Any], off: Mapping[str, Any] | None, measure: str) -> float:
    whole = off[f"{measure}_mean"] if off else float("nan")
    return row[f"{measure}_mean"] / whole if whole else float("nan")


def _combined_columns(run: Mapping[Any, Any]) -> dict[str, Any]:
    last, config = run["rows"][-1], run["config"]
    config = {**config, **{key: {**none, **config.get(key, {})} for key, none in _DEFAULTS.items()}}
    neighbours = {"scan": scan_words(run["scan"]), **_neighbours(config)}
    on = [name for key, name in neighbours.items() if _is_on(key, name)]
    repeats = last.get("samples_trained", last["samples_seen"]) - last["samples_seen"]
    reused_bytes = repeats * last["record_bytes"] / last["samples_seen"]
    return {
        "network": network_label(config["network"]),
        "processes": run["world_size"],
        **neighbours,
        "combination": " + ".join(on) or OFF,
        "variant": key_of({key: config[key] for key in _DEFAULTS} | {"epochs": config["training"]["epochs"]}),
        "storage_bytes": last["bytes_read"],
        "fresh": last["samples_seen"],
        "repeats": repeats,
        "reused_bytes": math.nan if config["echo"]["repeat_groups"] else reused_bytes,
        "updates": last["step"],
        "wire_bytes": last.get("bytes_sent"),
        **{key: last.get(key) for key in ("pushed_bytes", "pulled_bytes", "network_s")},
        **{key: last.get(key) for key in ("kept_bytes_mean", "kept_bytes_max")},
        "seconds": seconds_of(last),
        "wait_s": last["wait_s"],
    }


def _neighbours(config: Mapping[str, Any]) -> dict[str, str]:
    echo, gradients, activations = config["echo"], config["gradients"], config["activations"]
    server = " server" if gradients["mode"] == "server" else ""
    paper = " paper" if activations["error_model"] == "paper" else ""
    return {
        "echo": "none" if echo["factor"] == 1 else f"echo {echo['factor']:g}x",
        "gradients": gradients["name"] + server,
        "activations": activations["name"].replace("_", " ") + paper,
    }


def _is_on(neighbour: str, name: str) -> bool:
    return name != ("baseline" if neighbour == "scan" else "none")
