"""Quality measurements on disk: the rows, their summary, and where they come from."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.cells import Cell, kilobytes, markdown_table, percent
from pcr_exp.errors import RunError
from pcr_exp.measuring.quality import QUALITY_COLUMNS, summarise_quality
from pcr_exp.records.index import RecordIndex
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.provenance import write_measured
from pcr_exp.system.words import counted

log = logging.getLogger(__name__)

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

    Of several of the same records in the same decode mode one: they would be averaged. Two sets of one name
    get the beginning of their fingerprint into it, so that they are told apart.

    Raises:
        RunError: a measurement is damaged.
    """
    parts = []
    for meta_path, meta in read_metas(quality_root):
        rows_path = meta_path.with_name(ROWS_FILE)
        try:
            rows = pd.read_csv(rows_path)
        except (OSError, ValueError) as error:
            raise _damaged(meta_path, error) from error
        if list(rows.columns) != QUALITY_COLUMNS:
            given = f"{rows_path} has columns {list(rows.columns)}"
            raise RunError(f"{given}; wanted {QUALITY_COLUMNS}. {REMEDY}")
        of_set = {column: meta[column] for column in SET_COLUMNS}
        parts.append(pd.concat([pd.DataFrame(of_set, index=rows.index), rows], axis=1))
    if not parts:
        return pd.DataFrame(columns=[*SET_COLUMNS, *QUALITY_COLUMNS])
    quality = pd.concat(parts, ignore_index=True)
    sets = quality[SET_COLUMNS].drop_duplicates()
    namesakes = set(sets.loc[sets["dataset"].duplicated(), "dataset"])
    told_apart = quality["dataset"] + " " + quality["fingerprint"].str[:4] + ", " + quality["decode"]
    return quality.assign(dataset=quality["dataset"].where(~quality["dataset"].isin(namesakes), told_apart))


def read_metas(quality_root: str | Path) -> list[tuple[Path, dict[str, Any]]]:
    """The json of each measurement below a folder, and its path.

    Of several of the same records in the same decode mode that of most images, of these that of most groups,
    of these the latest; the log names the others.

    Raises:
        RunError: one is damaged.
    """
    found: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    for path in sorted(Path(quality_root).rglob(META_FILE)):
        try:
            meta = json.loads(path.read_text())
            of_set = {column: meta[column] for column in SET_COLUMNS}
            _how_much((path, meta))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error
        key = tuple(value for column, value in of_set.items() if column != "dataset")
        best = max(found.get(key, (path, meta)), (path, meta), key=_how_much)
        if key in found:
            left_out = path if best[0] != path else found[key][0]
            log.warning(
                "%s measures the same images as %s: the first is left out", left_out.parent, best[0].parent
            )
        found[key] = best
    return sorted(found.values(), key=lambda each: each[0])


def _how_much(measurement: tuple[Path, dict[str, Any]]) -> tuple[int, int, str]:
    _, meta = measurement
    return meta["num_images"], len(meta["groups"]), meta["measured_at"]


def _damaged(meta_path: Path, error: Exception) -> RunError:
    return RunError(f"{meta_path} or {ROWS_FILE} beside it is damaged: {error}. {REMEDY}")


def is_measured(folder: str | Path) -> bool:
    """Whether `write_quality` has finished in `folder`."""
    return (Path(folder) / META_FILE).exists()


def summary_markdown(summary: pd.DataFrame, dataset: str, split: str) -> str:
    """The answer for people: bytes, MS-SSIM and SSIM of every scan group, from quality_summary.csv."""
    highest = float(summary["bytes_mean"].iloc[-1])

    def spread(measure: str) -> Cell:
        return lambda row: (
            f"{row[f'{measure}_mean']:.3f} ({row[f'{measure}_p5']:.3f} to {row[f'{measure}_p95']:.3f})"
        )

    columns: dict[str, Cell] = {
        "scan group": lambda row: str(row["group"]),
        "an image": lambda row: kilobytes(row["bytes_mean"]),
        f"of group {summary['group'].iloc[-1]}": lambda row: percent(row["bytes_mean"] / highest),
        "MS-SSIM": spread("ms_ssim"),
        "SSIM": spread("ssim"),
    }
    n = counted(int(summary["n"].min()), "whole image")
    return f"{dataset}, {split}: means of {n}, with the 5th to 95th percentile\n\n" + markdown_table(
        summary, columns
    )
