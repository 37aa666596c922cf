"""What titles of figures say beside the rows that they draw: input size, and in what settings differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.runs_table import GROUP_KEYS, setting_key
from pcr_exp.runs.identity import differences, scientific_part

_NEVER_NAMED = ("scan", "seed", "dataset", "storage")
"""Groups that titles and legends say anyway."""
_AS_OTHERS = "as it is"
READ_ON = " then "
"""In the name of a level whose echoed repeats read the next scans."""


def with_settings(frame: pd.DataFrame, runs: Iterable[Run]) -> pd.DataFrame:
    """Rows of runs or evaluations with two columns more, and levels that read on called so.

    * `image_px`: the side of the crops that are trained on.
    * `told_apart`: in what a run's setting differs from the others of its dataset, label, model and storage,
      such as `gradients=threelc, epochs=2`; empty where there is no other.
    * `scan` of a run whose echoed repeats read the next scans: `group_2 then 5` for what is read at first and
      at last.

    Args:
        frame: With GROUP_KEYS and `scan`.
        runs: All that its rows are of.
    """
    if frame.empty:
        return frame.assign(image_px=[], told_apart=[])
    of_setting = {setting_key(run): run for run in runs}
    words: dict[str, str] = {}
    *shared, _ = GROUP_KEYS
    for _, rows in frame.groupby(shared):
        words |= words_of({setting: of_setting[setting].settings for setting in rows["setting"].unique()})
    return frame.assign(
        image_px=[of_setting[setting].config["training"]["image_size"] for setting in frame["setting"]],
        told_apart=frame["setting"].map(words),
        scan=[
            scan + _read_on(of_setting[setting])
            for scan, setting in zip(frame["scan"], frame["setting"], strict=True)
        ],
    )


def words_of(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By setting, in what its configuration differs from the others: names of options, and changed values."""
    if len(configs) < 2:
        return dict.fromkeys(configs, "")
    parts = {setting: scientific_part(config) for setting, config in configs.items()}
    first, *others = parts.values()
    keys = {key for other in others for key in differences(first, other)}
    groups = sorted({key.partition(".")[0] for key in keys} - set(_NEVER_NAMED))
    return {
        setting: ", ".join(word for group in groups for word in _words(group, part, parts.values()))
        or _AS_OTHERS
        for setting, part in parts.items()
    }


def _words(group: str, part: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> list[str]:
    value = part.get(group)
    if not isinstance(value, Mapping):
        return [] if value is None else [f"{group}={value}"]
    there = [other[group] for other in parts if isinstance(other.get(group), Mapping)]
    alike = [other for other in there if other.get("name") == value.get("name")]
    changed = [key for key in value if any(other.get(key) != value[key] for other in alike)]
    named = [f"{group}={value['name']}"] if "name" in value else []
    return [*named, *(f"{key}={value[key]}" for key in changed)]


def _read_on(run: Run) -> str:
    groups = run.config.get("echo", {}).get("repeat_groups") or []
    return f"{READ_ON}{groups[-1]}" if groups else ""
