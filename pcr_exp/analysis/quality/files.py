"""Quality measurements on disk: the rows, their summary, and where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.errors import RunError
from pcr_exp.measuring.quality import QUALITY_COLUMNS, summarise_quality
from pcr_exp.records.index import RecordIndex
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.provenance import write_measured

ROWS_FILE = "quality.csv"
SUMMARY_FILE = "quality_summary.csv"
META_FILE = "quality.json"
REMEDY = "Measure it again with `python -m experiments.quality`."
SET_COLUMNS = ["dataset", "split", "fingerprint", "decode", "antialias"]
"""What tells measurements apart; `dataset` is a name for people, by which nothing is looked up."""


def write_quality(
    folder: str | Path,
    quality: pd.DataFrame,
    index: RecordIndex,
    settings: Mapping[str, Any],
) -> None:
    """Write quality.csv, quality_summary.csv and quality.json (provenance) of rows measured on `index`.

    The json comes last: a folder that has it is whole.

    Args:
        folder: Is made.
        quality: Rows of QUALITY_COLUMNS.
        index: Of the records that were measured.
        settings: `decode` and `antialias`, and what else the json is to say, such as the key of the images.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "dataset": index.dataset,
        "split": index.split,
        "fingerprint": index.fingerprint,
        "num_images": int(quality["id"].nunique()),
        "num_images_in_split": index.num_samples,
        "groups": sorted(int(group) for group in quality["group"].unique()),
        **settings,
    }
    write_atomic(folder / ROWS_FILE, [quality.to_csv(index=False).encode()])
    write_atomic(folder / SUMMARY_FILE, [summarise_quality(quality).to_csv(index=False).encode()])
    write_measured(folder / META_FILE, facts, packages=["pytorch-msssim"])


def load_quality(quality_root: str | Path) -> pd.DataFrame:
    """All measurements below `quality_root`, with SET_COLUMNS in front; empty if there are none.

    Two sets of one name get the beginning of their fingerprint into it, so that they are told apart.

    Raises:
        RunError: a measurement is damaged, or two are of the same records in the same decode mode (they
            would be averaged).
    """
    found: dict[tuple[Any, ...], Path] = {}
    parts = []
    for meta_path in sorted(Path(quality_root).rglob(META_FILE)):
        rows_path = meta_path.with_name(ROWS_FILE)
        try:
            meta = json.loads(meta_path.read_text())
            of_set = {column: meta[column] for column in SET_COLUMNS}
            rows = pd.read_csv(rows_path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{meta_path} or {ROWS_FILE} beside it is damaged: {error}. {REMEDY}") from error
        if list(rows.columns) != QUALITY_COLUMNS:
            given = f"{rows_path} has columns {list(rows.columns)}"
            raise RunError(f"{given}; wanted {QUALITY_COLUMNS}. {REMEDY}")
        key = tuple(of_set[column] for column in SET_COLUMNS if column != "dataset")
        if key in found:
            both = f"{found[key]} and {meta_path.parent}"
            what = f"the records {of_set['fingerprint']} of {of_set['dataset']}, decode={of_set['decode']}"
            raise RunError(f"{both} both measure {what}: keep one of them below {quality_root}.")
        found[key] = meta_path.parent
        parts.append(pd.concat([pd.DataFrame(of_set, index=rows.index), rows], axis=1))
    if not parts:
        return pd.DataFrame(columns=[*SET_COLUMNS, *QUALITY_COLUMNS])
    quality = pd.concat(parts, ignore_index=True)
    sets = quality[SET_COLUMNS].drop_duplicates()
    namesakes = set(sets.loc[sets["dataset"].duplicated(), "dataset"])
    told_apart = quality["dataset"] + " " + quality["fingerprint"].str[:4] + ", " + quality["decode"]
    return quality.assign(dataset=quality["dataset"].where(~quality["dataset"].isin(namesakes), told_apart))


def is_measured(folder: str | Path) -> bool:
    """Whether `write_quality` has finished in `folder`."""
    return (Path(folder) / META_FILE).exists()
