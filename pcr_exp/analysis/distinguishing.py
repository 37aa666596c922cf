"""Text that distinguishes runs in titles: their input size, and the settings in which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.frame import SCAN_AND_SEED, without
from pcr_exp.runs.identity import differences

_NEVER_NAMED = ("seed", "dataset", "storage")
"""Configuration groups that titles and legends state anyway."""
_AS_OTHERS = "as it is"
READ_ON = " then "
"""Joins the first and the last group in the name of a level whose echoed repeats read further scans."""


def with_settings(rows: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of runs or evaluations with two added columns and a more detailed `scan`.

    * `image_px`: the side of the training crops, in pixels.
    * `told_apart`: how a run's setting differs from others of its dataset, label, model and storage, such as
      `gradients=threelc, epochs=2`; empty if there is no other.
    * `scan`: for a run whose echoed repeats read further scans, the first and the last group that are read,
      as `group_2 then 5`.

    Args:
        rows: Rows with GROUP_KEYS and `scan`.
        frame: `run_frame` with all of their runs.
    """
    settings = frame[frame["setting"].isin(rows["setting"])].drop_duplicates("setting", keep="last")
    configs = dict(zip(settings["setting"], settings["config"], strict=True))
    sizes_px = dict(zip(settings["setting"], settings["image_px"], strict=True))
    levels = zip(rows["scan"], rows["setting"], strict=True)
    return rows.assign(
        image_px=rows["setting"].map(sizes_px),
        told_apart=rows["setting"].map(describe_settings(settings)),
        scan=[scan + _read_on(configs[setting]) for scan, setting in levels],
    )


def describe_settings(frame: pd.DataFrame, less: Iterable[str] = SCAN_AND_SEED) -> dict[str, str]:
    """Return how each `setting` differs from others of the same dataset, label, model and storage.

    Args:
        frame: `run_frame`, or a page's version of it.
        less: Groups and dotted keys that `setting` leaves out.
    """
    words: dict[str, str] = {}
    for _, alike in frame.groupby(["dataset", "label", "model", "storage"]):
        words |= describe_differences(dict(zip(alike["setting"], alike["science"], strict=True)), less)
    return words


def titles_apart(
    sections: Sequence[tuple[str, Mapping[str, Any]]], words: Mapping[str, str] | None = None
) -> list[str]:
    """Return the titles of a page's sections, made unique by the keys in which equal titles differ.

    Args:
        sections: Each title, with the values of the keys that the section's rows share, among them `setting`.
        words: Description of each setting (`describe_settings`). Titles still equal get their setting's key.
    """
    titles = []
    for title, group in sections:
        others = [other for name, other in sections if name == title]
        differing = [key for key in group if len({str(other[key]) for other in others}) > 1]
        said = [(words or {}).get(group["setting"], "")] if "setting" in differing else []
        said += [f"{key} {group[key]}" for key in differing if key != "setting"]
        titles.append(" · ".join([title, *filter(None, said)]))
    counts = Counter(titles)
    return [
        f"{title} · setting {group['setting']}" if counts[title] > 1 else title
        for title, (_, group) in zip(titles, sections, strict=True)
    ]


def describe_differences(
    sciences: Mapping[str, Mapping[str, Any]], less: Iterable[str] = ()
) -> dict[str, str]:
    """Return how each setting's `scientific_part` differs from the others: option names, changed values.

    Groups and dotted keys in `less` are ignored.
    """
    if len(sciences) < 2:
        return dict.fromkeys(sciences, "")
    # Of the dataset's settings, only the augmentation distinguishes runs.
    parts = {
        setting: without({**science, "augment": (science.get("dataset") or {}).get("augment")}, less)
        for setting, science in sciences.items()
    }
    first, *others = parts.values()
    keys = {key for other in others for key in differences(first, other)}
    groups = sorted({key.partition(".")[0] for key in keys} - set(_NEVER_NAMED))
    return {
        setting: ", ".join(
            word for group in groups for word in _differing_settings(group, part, parts.values())
        )
        or _AS_OTHERS
        for setting, part in parts.items()
    }


def _differing_settings(group: str, part: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> list[str]:
    value = part.get(group)
    if not isinstance(value, Mapping):
        return [] if value is None else [f"{group}={value}"]
    there = [other[group] for other in parts if isinstance(other.get(group), Mapping)]
    named = [f"{group}={value['name']}"] if "name" in value else []
    return [*named, *changed_settings(value, there)]


def changed_settings(value: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which a group differs from others of the same name, as `error_model=paper`."""
    alike = [other for other in others if other.get("name") == value.get("name")]
    return [f"{key}={value[key]}" for key in value if any(other.get(key) != value[key] for other in alike)]


def _read_on(config: Mapping[str, Any]) -> str:
    groups = config.get("echo", {}).get("repeat_groups") or []
    return f"{READ_ON}{groups[-1]}" if groups else ""
