"""Runs that differ in one setting, compared seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.markdown import (
    NOTHING,
    Footnotes,
    difference_cell,
    markdown_table,
    percent,
    spread_cell,
)
from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.runs_table import eval_curves, setting_of
from pcr_exp.analysis.core.statistics import NEVER, paired_difference, spread
from pcr_exp.config.labels import scan_label, storage_label
from pcr_exp.errors import RunError

SIDE_BY_SIDE = ["dataset", "label", "model", "storage", "scan"]
"""What runs share that are compared."""
_CAME_LATER = {"loader.antialias": False}
"""What runs did whose configuration is older than a key."""
COMPARISON_COLUMNS = [
    *SIDE_BY_SIDE,
    "value",
    "n",
    "top1_mean",
    "top1_min",
    "top1_max",
    "difference_n",
    "difference_mean",
    "difference_ci95",
    "majority_share",
]


def compare_setting(runs: Sequence[Run], key: str, reference: str) -> pd.DataFrame:
    """One row per dataset, label, model, storage, scan and value of a configuration key.

    `top1` is the validation top-1 of the finished model, over seeds. `difference` is that less the top-1 of
    the same seed at the value `reference`: mean over the seeds that have both, and half its 95 % interval.

    Args:
        key: dotted, as on the command line: `loader.decode`; or a group, `activations`, whose values are the
            names of its options, with the settings in which runs of one name differ.
        reference: the value that the others are compared with, as text.

    Raises:
        RunError: a run has no such key, none has the reference, or two differ in something else.
    """
    values = _values(runs, key)
    frame = pd.DataFrame([_row(run, value) for run, value in zip(runs, values, strict=True)])
    if frame.empty or reference not in set(frame["value"]):
        found = sorted(set(frame["value"])) if len(frame) else "no finished run"
        raise RunError(f"compare={key} reference={reference}: no run has this value; found {found}.")
    # Runs that differ in workers or hardware alone learned the same: one of them counts.
    frame = frame.drop_duplicates([*SIDE_BY_SIDE, "value", "seed", "setting"])
    twice = frame[frame.duplicated([*SIDE_BY_SIDE, "value", "seed"], keep=False)]
    if len(twice):
        raise RunError(
            f"compare={key}: runs differ in more than it: {', '.join(twice['run_id'].head(2))}. Put runs "
            "that are to be compared into a folder of their own (runs_root)."
        )
    rows = []
    for _, level in frame.groupby(SIDE_BY_SIDE):
        for value in reference_first(level["value"], reference):
            ours = level[level["value"] == value]
            row: dict[Any, Any] = {**level.iloc[0][SIDE_BY_SIDE].to_dict(), "value": value, "n": len(ours)}
            row |= {"majority_share": level["majority_share"].iloc[0], **spread(ours, ["top1"])}
            rows.append(row | paired_difference(ours, level[level["value"] == reference], "top1"))
    return pd.DataFrame(rows, columns=COMPARISON_COLUMNS)


def comparison_curves(runs: Sequence[Run], key: str) -> pd.DataFrame:
    """One row per evaluation (`eval_curves`), with the run's value of a configuration key as `value`.

    Raises:
        RunError: a run has no such key.
    """
    valued = zip(runs, _values(runs, key), strict=True)
    return pd.concat([eval_curves([run]).assign(value=value) for run, value in valued], ignore_index=True)


def comparison_to_markdown(table: pd.DataFrame, key: str, reference: str) -> str:
    """The table for people; differences in percentage points."""

    notes = Footnotes()

    def difference(row: Mapping[Any, Any]) -> str:
        return NOTHING if row["value"] == reference else difference_cell(row, notes)

    text = markdown_table(
        table,
        {
            "dataset": lambda row: f"{row['dataset']} · {row['label']} · {row['model']}",
            "scan": lambda row: str(row["scan"]).replace("_", " "),
            key: lambda row: row["value"],
            "n": lambda row: notes.count(row["n"]),
            "last top-1": lambda row: spread_cell(row, "top1", percent),
            "majority class": lambda row: percent(row["majority_share"]),
            f"difference to {reference} (points, ± half its 95 % interval)": difference,
        },
    )
    return f"{text}\n\n{notes}" if str(notes) else text


def _values(runs: Sequence[Run], key: str) -> list[str]:
    return _as_text([_value(run, key) for run in runs])


def _value(run: Run, key: str) -> Any:
    value: Any = run.config
    if key in _CAME_LATER and key.split(".")[-1] not in value[key.split(".")[0]]:
        return _CAME_LATER[key]
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise RunError(f"compare={key}: the configuration of {run.manifest.run_id} has no such key.")
        value = value[part]
    return value


def _as_text(values: Sequence[Any]) -> list[str]:
    """`error_bounded, error_model=paper` for a group of settings; anything else as it is."""
    groups = [value for value in values if isinstance(value, Mapping)]
    texts = []
    for value in values:
        if not isinstance(value, Mapping):
            texts.append(str(value))
            continue
        alike = [group for group in groups if group.get("name") == value.get("name")]
        differing = [key for key in value if any(group.get(key) != value[key] for group in alike)]
        texts.append(", ".join([str(value.get("name")), *(f"{key}={value[key]}" for key in differing)]))
    return texts


def _row(run: Run, value: str) -> dict[str, Any]:
    return {
        "run_id": run.manifest.run_id,
        "dataset": run.manifest.dataset,
        "label": run.manifest.label,
        "model": run.manifest.model,
        "storage": storage_label(run.config["storage"]),
        "scan": scan_label(run.config["scan"]),
        "seed": run.manifest.seed,
        "setting": setting_of(run),
        "value": value,
        "top1": run.eval_rows[-1]["val_top1"],
        "majority_share": NEVER if run.majority_share is None else run.majority_share,
    }


def reference_first(values: Iterable[str], reference: str) -> list[str]:
    """Distinct values, the reference before the others."""
    return sorted(set(values), key=lambda value: (value != reference, value))
