"""Tables of echoed runs: the score that each echo reached, and the fresh samples that it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from experiments.results.methods import over_seeds, page_frame
from pcr_exp.analysis.frame import GROUP_KEYS
from pcr_exp.analysis.over_images import with_intervals
from pcr_exp.analysis.statistics import distinct_seeds, paired_difference
from pcr_exp.config.related_methods import EchoConfig

BASELINE = "baseline"
PANEL_KEYS = GROUP_KEYS
"""Columns that the runs of a panel share; `setting` stands for all but SERIES_KEYS and seed."""
SERIES_KEYS = ["scan", "variant", "factor", "buffer", "repeat_groups", "batch_size", "epochs"]
TIMES = [
    *("time_to_target_s", "s_per_fresh"),
    *("upstream_s_per_sample", "downstream_s_per_sample", "upstream_ratio"),
]
MEASURES = ["fresh_to_target", "bytes_to_target", "record_bytes", "final_score", "best_score", *TIMES]
COMPARED = (
    *("echo", "scan", "seed"),
    *("training.batch_size", "training.epochs", "training.learning_rate"),
)
_SAME = [
    *("encoding", "group", "learning_rate", "target_score", "updates", "fresh"),
    *("majority_share", "num_classes", "headline", "target_excluded_because"),
]


def echo_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame of runs with SERIES_KEYS, learning_rate, updates, fresh and MEASURES.

    `variant` is `baseline` if nothing is repeated, whatever the buffer. `fresh` and `record_bytes` cover the
    whole run; `record_bytes` includes probes. `epochs` is the configured number. `s_per_fresh` is seconds of
    training and waiting per fresh sample. The last three TIMES come from a run's last row, and are NaN in
    runs from before they were measured. All TIMES are NaN if no seconds may be reported.
    """
    return page_frame(frame, _echo_columns, less=COMPARED, times=TIMES)


def tuned(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return one row per PANEL_KEYS x SERIES_KEYS, over seeds, each at the best learning rate that it ran at.

    With `by="fresh_to_target"`, the best is the rate at which most seeds reach the target, then the one with
    the fewest fresh samples to it. With `by="final_score"`, it is the one with the highest score. It is
    chosen on the runs that are shown, as in Choi et al. 2019, so all are equally optimistic if all had the
    same choice. `num_rates` is the number of rates.

    Columns: the keys, `learning_rate`, `num_rates`, `n` seeds, `num_reached`, `target_score`, `updates`,
    `fresh`, the chance level, reasons for exclusion, and `<measure>_mean`, `_min` and `_max` for each of
    MEASURES. These are NaN if a seed has none; TIMES also over runs of unlike hardware or settings.
    `difference_*` (`statistics.DIFFERENCE`) is the last score minus the baseline's for the same seed: the
    panel's baseline has the same scan, batch size and epochs, and the smallest buffer. NaN if there is none.
    """
    rows = []
    for panel, of_panel in frame.groupby(PANEL_KEYS, sort=True):
        found = []
        for key, series in of_panel.groupby(SERIES_KEYS, sort=True):
            rates = [(_series(rate), rate) for _, rate in series.groupby("learning_rate")]
            best, runs = max(rates, key=lambda rate: _merit(rate[0], by))
            keys = dict(zip([*PANEL_KEYS, *SERIES_KEYS], [*panel, *key], strict=True))
            found.append(({**keys, "num_rates": len(rates), **best}, runs))
        rows += [row | difference for (row, _), difference in zip(found, _differences(found), strict=True)]
    return pd.DataFrame(rows)


def _differences(series: Sequence[tuple[Mapping[str, Any], pd.DataFrame]]) -> list[dict[str, Any]]:
    """Return each series' difference in score to its panel's baseline, in the order of the series."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, (row, _) in enumerate(series):
        alike.setdefault((row["scan"], row["batch_size"], row["epochs"]), []).append(place)
    found: dict[int, dict[str, Any]] = {}
    for places in alike.values():
        baselines = [place for place in places if series[place][0]["variant"] == BASELINE]
        reference = min(baselines, key=lambda place: series[place][0]["buffer"], default=None)
        nobody = series[places[0]][1].iloc[:0]
        baseline = nobody if reference is None else series[reference][1]
        if reference is not None:
            found[reference] = paired_difference(baseline, nobody, "final_score")
        if others := [series[place][1].assign(scan=place) for place in places if place != reference]:
            # with_intervals tells levels apart by `scan`.
            found |= with_intervals(pd.concat(others), baseline, "final_score")
    return [found[place] for place in range(len(series))]


def _merit(rate: Mapping[str, Any], by: str) -> tuple[float, ...]:
    if by == "final_score":
        return (rate["final_score_mean"],)
    mean = rate["fresh_to_target_mean"]
    is_known = bool(pd.notna(mean))
    return rate["num_reached"], is_known, -mean if is_known else rate["final_score_mean"]


def _series(runs: pd.DataFrame) -> dict[str, Any]:
    row = over_seeds(runs, _SAME, MEASURES, TIMES)
    reached = distinct_seeds(runs)["fresh_to_target"].notna()
    return row | {"num_reached": int(reached.sum())}


def _echo_columns(run: Mapping[Any, Any]) -> dict[str, Any]:
    last, training = run["rows"][-1], run["config"]["training"]
    echo = asdict(EchoConfig()) | run["config"].get("echo", {})
    return {
        "variant": BASELINE if echo["factor"] == 1 else echo["name"],
        "factor": float(echo["factor"]),
        "buffer": echo["buffer"],
        "repeat_groups": " ".join(map(str, echo["repeat_groups"])),
        **{key: training[key] for key in ("batch_size", "epochs", "learning_rate")},
        "updates": last["step"],
        "fresh": run["samples"],
        "record_bytes": run["record_bytes"] + run["probe_bytes"],
        "s_per_fresh": (run["train_s"] + run["wait_s"]) / run["samples"],
        **{measure: last.get(measure) for measure in TIMES[-3:]},
    }
