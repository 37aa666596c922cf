"""Echoed runs as a table, and side by side: what each echo reached with how many fresh examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.permitted import FACTS, UNLIKE, distinct, facts_of
from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.runs_table import accuracy_of, scientific_setting
from pcr_exp.analysis.core.statistics import NEVER, distinct_seeds, paired_difference, spread
from pcr_exp.analysis.core.time_to_target import first_reached, reached_of
from pcr_exp.config.echo import EchoConfig
from pcr_exp.config.labels import scan_label, storage_label
from pcr_exp.config.records import key_of

BASELINE = "baseline"
PANEL_KEYS = ["dataset", "label", "model", "storage", "setting"]
"""What runs share that are drawn together; `setting` stands for all that SERIES_KEYS and seed do not name."""
SERIES_KEYS = ["scan", "variant", "factor", "buffer", "repeat_groups", "batch_size", "epochs"]
TIMES = [
    *("time_to_target_s", "s_per_fresh"),
    *("upstream_s_per_sample", "downstream_s_per_sample", "upstream_ratio"),
]
MEASURES = ["fresh_to_target", "bytes_to_target", "record_bytes", "final_top1", "best_top1", *TIMES]
_NAMED = ("echo", "scan", "seed")


def echo_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run: PANEL_KEYS, SERIES_KEYS, learning_rate, seed, target_top1, updates, FACTS, MEASURES.

    `variant` is `baseline` where nothing is repeated, whatever its buffer. `fresh` and `record_bytes`: of the
    whole run. `fresh_to_target`, `bytes_to_target` (of records), `time_to_target_s` (training and waiting):
    at the first evaluation that reaches the target, NaN if none does, or if the target is one of guessing.
    `s_per_fresh`: seconds of training and waiting per fresh example. The last three: as the run's last row
    says; NaN in runs from before they were measured. TIMES are NaN where no seconds may be said.
    """
    columns = [*("run_id", *PANEL_KEYS, *SERIES_KEYS, "learning_rate", "seed", "target_top1")]
    columns += ["updates", "fresh", *FACTS, *MEASURES]
    frame = pd.DataFrame([_frame_row(run) for run in runs], columns=columns)
    frame.loc[frame["no_seconds"] != "", TIMES] = NEVER
    return frame


def tuned(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per PANEL_KEYS x SERIES_KEYS, over seeds, each at the best of the learning rates it ran at.

    The best is the one that most seeds reach the target with, then the one with the fewest fresh examples to
    it (`by="fresh_to_target"`); or the one with the highest accuracy (`by="final_top1"`). It is chosen on the
    runs that are shown, as in Choi et al. 2019: so all are flattered alike, if all had the same choice.
    `num_rates` says how many there were.

    Columns: the keys, `learning_rate`, `num_rates`, `n` seeds, `num_reached`, `target_top1`, `updates`,
    `fresh`, what guessing reaches, why nothing may be said; `<measure>_mean`, `_min` and `_max` for each of
    MEASURES, NaN where a seed has none, TIMES also over runs of unlike hardware or settings;
    `difference_*`: the last top-1 less that of the same seed of the panel's baseline (of the same batch size,
    with the smallest buffer), NaN where there is none.
    """
    rows = []
    for panel, of_panel in frame.groupby(PANEL_KEYS, sort=True):
        found = []
        for key, series in of_panel.groupby(SERIES_KEYS, sort=True):
            rates = [(_over_seeds(rate), rate) for _, rate in series.groupby("learning_rate")]
            best, runs = max(rates, key=lambda rate: _merit(rate[0], by))
            keys = dict(zip([*PANEL_KEYS, *SERIES_KEYS], [*panel, *key], strict=True))
            found.append(({**keys, "num_rates": len(rates), **best}, runs))
        rows += [row | _difference(row, runs, found) for row, runs in found]
    return pd.DataFrame(rows)


def _difference(
    row: Mapping[str, Any], runs: pd.DataFrame, panel: Sequence[tuple[Mapping[str, Any], pd.DataFrame]]
) -> dict[str, float]:
    baselines = [
        (other["buffer"], others)
        for other, others in panel
        if other["variant"] == BASELINE
        and all(other[key] == row[key] for key in ("scan", "batch_size", "epochs"))
    ]
    nobody = runs.iloc[:0]
    reference = min(baselines, key=lambda found: found[0])[1] if baselines else nobody
    return paired_difference(runs, nobody if reference is runs else reference, "final_top1")


def _merit(rate: Mapping[str, Any], by: str) -> tuple[float, float]:
    if by == "final_top1":
        return rate["final_top1_mean"], 0.0
    mean = rate["fresh_to_target_mean"]
    return rate["num_reached"], rate["final_top1_mean"] if pd.isna(mean) else -mean


def _over_seeds(runs: pd.DataFrame) -> dict[str, Any]:
    seeds = distinct_seeds(runs)
    first = seeds.iloc[0]
    row: dict[str, Any] = {
        "learning_rate": first["learning_rate"],
        "n": len(seeds),
        "num_reached": int(seeds["fresh_to_target"].notna().sum()),
        **{key: first[key] for key in ("target_top1", "updates", "fresh", "majority_share", "num_classes")},
        "no_target": first["no_target"],
        "no_seconds": " / ".join(distinct(seeds["no_seconds"])),
        "hardware": " / ".join(sorted(set(seeds["hardware"]))),
        **spread(seeds, MEASURES),
    }
    if not row["no_seconds"] and seeds["timing"].nunique() > 1:
        row["no_seconds"] = UNLIKE
        row |= {f"{measure}_{part}": NEVER for measure in TIMES for part in ("mean", "min", "max")}
    return row


def _frame_row(run: Run) -> dict[str, Any]:
    manifest, config, last = run.manifest, run.config, run.rows[-1]
    echo = {**_no_echo(), **config.get("echo", {})}
    facts = facts_of(run)
    reached = None if facts["no_target"] else first_reached(run.rows, manifest.target)
    return {
        "run_id": manifest.run_id,
        "dataset": manifest.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "storage": storage_label(config["storage"]),
        "setting": _setting(run),
        "scan": scan_label(config["scan"]),
        "variant": BASELINE if echo["factor"] == 1 else echo["name"],
        "factor": float(echo["factor"]),
        "buffer": echo["buffer"],
        "repeat_groups": " ".join(map(str, echo["repeat_groups"])),
        "batch_size": config["training"]["batch_size"],
        "epochs": config["training"]["epochs"],
        "learning_rate": config["training"]["learning_rate"],
        "seed": manifest.seed,
        "target_top1": manifest.target,
        "updates": last["step"],
        "fresh": last["samples_seen"],
        "record_bytes": last["record_bytes"] + last["probe_bytes"],
        **facts,
        "fresh_to_target": reached["samples_seen"] if reached else NEVER,
        "bytes_to_target": reached["record_bytes"] if reached else NEVER,
        "time_to_target_s": reached_of(run)["time_to_target_s"],
        **accuracy_of(run),
        "s_per_fresh": (last["train_s"] + last["wait_s"]) / last["samples_seen"],
        **{measure: last.get(measure) for measure in TIMES[-3:]},
    }


def _no_echo() -> dict[str, Any]:
    none = EchoConfig()
    return {"name": none.name, "factor": none.factor, "buffer": none.buffer, "repeat_groups": []}


def _setting(run: Run) -> str:
    """Eight hex digits of what SERIES_KEYS, learning rate, seed and target do not name."""
    part = {key: value for key, value in scientific_setting(run).items() if key not in _NAMED}
    for group, keys in {
        "dataset": ("target_top1",),
        "training": ("batch_size", "epochs", "learning_rate"),
    }.items():
        part[group] = {key: value for key, value in part[group].items() if key not in keys}
    return key_of(part)
