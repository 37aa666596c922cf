"""What titles of figures and tables say beside their rows: input size, and in what settings differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.frame import SCAN_AND_SEED, setting_key
from pcr_exp.analysis.runs import Run
from pcr_exp.config.describe import storage_label
from pcr_exp.runs.identity import differences, scientific_part

_NEVER_NAMED = ("seed", "dataset", "storage")
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
    words = setting_words([of_setting[setting] for setting in frame["setting"].unique()])
    return frame.assign(
        image_px=[of_setting[setting].config["training"]["image_size"] for setting in frame["setting"]],
        told_apart=frame["setting"].map(words),
        scan=[
            scan + _read_on(of_setting[setting])
            for scan, setting in zip(frame["scan"], frame["setting"], strict=True)
        ],
    )


def setting_words(runs: Iterable[Run], less: Iterable[str] = (), keep: Iterable[str] = ()) -> dict[str, str]:
    """By `setting_key`, in what it differs from those of the same dataset, label, model and storage.

    `less` and `keep` as `setting_key` takes them; without `less`, scan and seed are left out.
    """
    compared = tuple(less) or SCAN_AND_SEED
    alike: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for run in runs:
        manifest, storage = run.manifest, storage_label(run.config["storage"])
        task = (run.dataset, manifest.label, manifest.model, storage)
        alike[task][setting_key(run, compared, keep)] = run.settings
    words: dict[str, str] = {}
    for configs in alike.values():
        words |= words_of(configs, compared)
    return words


def values_of(rows: pd.DataFrame, keys: Sequence[str]) -> dict[str, Any]:
    """What all rows have in these columns."""
    return {key: rows[key].iloc[0] for key in keys}


def titles_apart(
    sections: Sequence[tuple[str, Mapping[str, Any]]], words: Mapping[str, str] | None = None
) -> list[str]:
    """The titles of a page's sections, no two alike: each says in what it differs from those of its title.

    Args:
        sections: A title, and the values of the keys that the section's rows share, `setting` among them.
        words: By setting, as `setting_words` has them; one that is missing is called by its key.
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


def words_of(configs: Mapping[str, Mapping[str, Any]], less: Iterable[str] = ()) -> dict[str, str]:
    """By setting, in what its configuration differs from the others: names of options, and changed values.

    Groups and dotted keys of `less` are passed over.
    """
    if len(configs) < 2:
        return dict.fromkeys(configs, "")
    parts = {setting: _without(scientific_part(config), less) for setting, config in configs.items()}
    first, *others = parts.values()
    keys = {key for other in others for key in differences(first, other)}
    groups = sorted({key.partition(".")[0] for key in keys} - set(_NEVER_NAMED))
    return {
        setting: ", ".join(word for group in groups for word in _words(group, part, parts.values()))
        or _AS_OTHERS
        for setting, part in parts.items()
    }


def _without(part: Mapping[str, Any], less: Iterable[str]) -> dict[str, Any]:
    found = {group: dict(value) if isinstance(value, Mapping) else value for group, value in part.items()}
    found["augment"] = (found.get("dataset") or {}).get("augment")  # of a dataset nothing else differs
    for name in less:
        group, _, key = name.partition(".")
        if not key:
            found.pop(group, None)
        elif isinstance(found.get(group), dict):
            found[group].pop(key, None)
    return found


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
