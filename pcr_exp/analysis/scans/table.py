"""Runs side by side: one line per scan level, over its seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.over_images import with_intervals
from pcr_exp.analysis.core.permitted import NEVER, all_hardware, distinct
from pcr_exp.analysis.core.runs_table import GROUP_KEYS
from pcr_exp.analysis.core.statistics import REPEAT, distinct_seeds, paired_ratio, spread
from pcr_exp.runs.predictions import Predictions

ACCURACY = ["final_score", "best_score"]
SPEED = ["images_per_s", "storage_mib_per_s", "wait_share", "time_to_target_s"]


def scan_comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that figures of scan levels show: not of groups (GROUP_KEYS) of one level in several settings.

    Those compare settings; as panels of one curve each, they would compare nothing.
    """
    *named, _ = GROUP_KEYS
    num_levels = rows.groupby(GROUP_KEYS)["scan"].transform("nunique")
    num_settings = rows.groupby(named)["setting"].transform("nunique")
    return rows[(num_levels > 1) | (num_settings == 1)]


def with_timing(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs_frame`'s rows, whose `timing` is emptied in groups of which no run's seconds may be said.

    Then it tells nothing apart; where seconds may be said, rows of unlike hardware or settings stay apart.
    """
    may = runs["no_seconds"] == ""
    any_may = may.groupby([runs[key] for key in GROUP_KEYS]).transform("any")
    return runs.assign(timing=runs["timing"].where(any_may.astype(bool), ""))


def one_run_per_seed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each seed's and scan level's first run, wherever it ran; `timing` tells nothing apart."""
    repeat = [key for key in REPEAT if key in rows]
    first = rows.groupby([*GROUP_KEYS, "scan", *repeat])["run_id"].transform("first")
    return rows[rows["run_id"] == first].assign(timing="")


def summary_table(runs: pd.DataFrame, predictions: Mapping[str, Predictions] | None = None) -> pd.DataFrame:
    """One row per GROUP_KEYS x timing x scan of `runs_frame`, over seeds or folds; numbers, not text.

    * Scores are over the `n` seeds of a setting, wherever they ran: `final_score_*` (what is reported) and
      `best_score_*`, each mean, min, max; `difference_*`: final score less the baseline's of the same seed,
      with an interval over images as well where all runs of the group are in `predictions`, by run id.
    * Rates and times are over the `n_timed` runs that share a timing (hardware, workers, commit), NaN where
      `no_seconds` says why they may not be shown. `num_reached`: seeds that reached the target. Where some
      did not, `time_to_target_s_*` are NaN: a mean over the lucky seeds would flatter.
    * `speedup_over_baseline`: the baseline's seconds to the target over this level's of the same seed, a mean
      over the seeds of both; NaN unless every seed of both reached it and both may be said.
    * `ms_ssim`: mean over the runs, NaN where one was not measured; `num_scales`: the fewest;
      `ms_ssim_of`: whole images, or training crops and their side (`run_quality`).
    """
    rows = []
    for group, of_group in with_timing(runs).groupby(GROUP_KEYS, sort=True):
        baseline = of_group[of_group["encoding"] == "baseline"]
        differences = with_intervals(of_group, baseline, "final_score", predictions or {})
        for (timing, scan), of_scan in of_group.groupby(["timing", "scan"], sort=True):
            level = of_group[of_group["scan"] == scan]
            keys = dict(zip([*GROUP_KEYS, "timing", "scan"], [*group, timing, scan], strict=True))
            rows.append(keys | _summary(level, of_scan, baseline, differences[scan]))
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    table["_level"] = table["group"].where(table["encoding"] != "baseline", 0)
    table = table.sort_values([*GROUP_KEYS, "timing", "_level", "scan"])
    return table.drop(columns="_level").reset_index(drop=True)


def _summary(
    level: pd.DataFrame, timed: pd.DataFrame, baseline: pd.DataFrame, difference: Mapping[str, Any]
) -> dict[str, Any]:
    seeds = distinct_seeds(level)
    first = seeds.iloc[0]
    same_timing = baseline[baseline["timing"] == timed["timing"].iloc[0]]
    reasons = distinct(timed["no_seconds"])
    speed = spread(timed, SPEED)
    if reasons:
        speed = dict.fromkeys(speed, NEVER)
    row: dict[str, Any] = {
        "encoding": first["encoding"],
        "group": first["group"],
        "n": len(seeds),
        "mean_image_bytes": seeds["mean_image_bytes"].mean(),
        "ms_ssim": seeds["ms_ssim"].mean(skipna=False),
        "num_scales": seeds["num_scales"].min(),
        "ms_ssim_of": " / ".join(distinct(seeds["ms_ssim_of"].fillna(""))),
        "target_score": first["target_score"],
        "majority_share": first["majority_share"],
        "num_classes": first["num_classes"],
        "headline": first["headline"],
        **spread(seeds, ["final_score", "best_score"]),
        **difference,
        "num_reached": int(seeds["epochs_to_target"].notna().sum()),
        "no_target": first["no_target"],
        "n_timed": len(timed),
        "no_seconds": reasons[0] if reasons else "",
        **speed,
        "hardware": all_hardware(timed),
    }
    every = timed["time_to_target_s"].notna().all() and same_timing["time_to_target_s"].notna().all()
    ratio = paired_ratio(same_timing, timed, "time_to_target_s") if every else {"speedup": NEVER}
    return row | {"speedup_over_baseline": ratio["speedup"]}
