"""Runs side by side: one line per scan level, over its seeds."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

GROUP_KEYS = ["dataset", "label", "model", "storage", "setting"]
"""What two runs must share to be compared; `setting` stands for everything else but scan and seed."""

SPREAD_MEASURES = ["images_per_s", "storage_mib_per_s", "wait_share", "best_top1", "time_to_target_s"]


def scan_comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that figures of scan levels show: not of groups (GROUP_KEYS) of one level in several settings.

    Those compare settings; as panels of one curve each, they would compare nothing.
    """
    *named, _ = GROUP_KEYS
    num_levels = rows.groupby(GROUP_KEYS)["scan"].transform("nunique")
    num_settings = rows.groupby(named)["setting"].transform("nunique")
    return rows[(num_levels > 1) | (num_settings == 1)]


def summary_table(runs: pd.DataFrame, quality: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per GROUP_KEYS x scan of `load_runs`, over seeds; numbers, not text.

    * `n` runs; `<measure>_mean`, `_min` and `_max` over them for each of SPREAD_MEASURES.
    * `num_reached`: runs that reached the target. Where some did not, `time_to_target_s_*` are NaN: a mean
      over the lucky seeds would flatter.
    * `speedup_over_baseline`: the baseline's mean seconds to the target over this level's, NaN unless every
      seed of both reached it.
    * `ms_ssim`: mean of the dataset's quality rows (columns dataset, group, ms_ssim) at the level's group; 1
      for the baseline, whose pixels are those of all scans; NaN where it was not measured, and of policies.
    """
    rows = [_summary(key, level, quality) for key, level in runs.groupby([*GROUP_KEYS, "scan"], sort=True)]
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    is_baseline = table["encoding"] == "baseline"
    baseline = table[is_baseline].set_index(GROUP_KEYS)["time_to_target_s_mean"]
    of_group = table.set_index(GROUP_KEYS).index.map(baseline.to_dict())
    table["speedup_over_baseline"] = of_group.to_numpy(float) / table["time_to_target_s_mean"]
    table["_level"] = table["group"].where(~is_baseline, 0)
    return table.sort_values([*GROUP_KEYS, "_level", "scan"]).drop(columns="_level").reset_index(drop=True)


def _summary(key: tuple, level: pd.DataFrame, quality: pd.DataFrame | None) -> dict:
    first = level.iloc[0]
    row = {
        **dict(zip([*GROUP_KEYS, "scan"], key, strict=True)),
        "encoding": first["encoding"],
        "group": first["group"],
        "n": len(level),
        "mean_image_bytes": level["mean_image_bytes"].mean(),
        "ms_ssim": ms_ssim_of(first, quality),
        "target_top1": first["target_top1"],
        "num_reached": int(level["time_to_target_s"].notna().sum()),
        "hardware": " / ".join(sorted(set(level["hardware"]))),
    }
    return row | spread(level, SPREAD_MEASURES)


def spread(runs: pd.DataFrame, measures: Iterable[str]) -> dict[str, float]:
    """`<measure>_mean`, `_min` and `_max` over runs; NaN where one of them has none."""
    found = {}
    for measure in measures:
        values = runs[measure].astype(float)
        found[f"{measure}_mean"] = values.mean(skipna=False)
        found[f"{measure}_min"], found[f"{measure}_max"] = values.min(skipna=False), values.max(skipna=False)
    return found


def ms_ssim_of(run: pd.Series, quality: pd.DataFrame | None) -> float:
    """Mean MS-SSIM of the quality rows at a run's dataset and group; 1 for the baseline, NaN without any."""
    if run["encoding"] == "baseline":
        return 1.0
    if quality is None:
        return float("nan")
    measured = quality[(quality["dataset"] == run["dataset"]) & (quality["group"] == run["group"])]
    return float(measured["ms_ssim"].mean())
