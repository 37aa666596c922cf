"""Numbers out of committed files, each with its interval, n and hardware."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcr_exp.analysis.claims.verdict import Range
from pcr_exp.analysis.core.made_by import hardware_of
from pcr_exp.analysis.core.permitted import all_hardware
from pcr_exp.analysis.core.statistics import half_width
from pcr_exp.errors import RunError

OVER_REPEATS = "95 %"
"""Student's t over seeds or repeats, or the bootstrap of the file that the number is from."""
ALL = "smallest to largest"
EXACT = "exact"
"""Bytes and counts: another run gives the same."""
NONE = "none"


@dataclass(frozen=True, slots=True)
class Measured:
    """One number of ours: of a dataset, a setting or of all there is (`case` is empty)."""

    case: str
    value: float
    low: float
    high: float
    n: int
    interval: str
    holds: Range | None = None
    """Where this case must lie, if not where all cases of its claim must."""


def exactly(case: str, value: float, n: int = 1) -> Measured:
    """A number that does not scatter; `n` is how many images, tensors or files it is of."""
    return Measured(case, value, value, value, n, EXACT)


def mean_of(case: str, values: Iterable[float]) -> Measured:
    """The mean over seeds or repeats with its 95 % interval; none if there is one value alone."""
    found = np.asarray(list(values), dtype=float)
    return plus_minus(case, float(found.mean()), half_width(found), len(found))


def plus_minus(case: str, mean: float, ci95: float, n: int) -> Measured:
    """A mean whose file has half of its 95 % interval; none if that is NaN."""
    interval = NONE if math.isnan(ci95) else OVER_REPEATS
    return Measured(case, mean, mean - ci95, mean + ci95, n, interval)


def all_of(case: str, values: Iterable[float]) -> Measured:
    """The median of a claim about every one of the values, from the smallest to the largest of them."""
    found = np.asarray(list(values), dtype=float)
    return Measured(case, float(np.median(found)), float(found.min()), float(found.max()), len(found), ALL)


def three_values(row: pd.Series, measure: str) -> list[float]:
    """The values whose `<measure>_mean`, `_min`, `_max` and `n` a row has: of at most three, these say all.

    Where there is no column `<measure>_mean`, the mean is in `<measure>`.

    Raises:
        RunError: `n` is above 3.
    """
    mean = float(row[f"{measure}_mean" if f"{measure}_mean" in row else measure])
    low, high, n = float(row[f"{measure}_min"]), float(row[f"{measure}_max"]), int(row["n"])
    if n > 3:
        raise RunError(f"{measure}: n = {n}; wanted at most 3, whose mean and ends say every value.")
    return {1: [mean], 2: [low, high], 3: [low, 3 * mean - low - high, high]}[n]


class Committed:
    """The files below `results/`."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is read yet."""
        self.root = root
        self._read = cache(lambda file: pd.read_csv(root / file))

    def rows(self, file: str, query: str = "") -> pd.DataFrame:
        """The rows of a CSV file that a pandas query chooses.

        Raises:
            FileNotFoundError: the file is not committed yet.
            RunError: it has no such rows.
        """
        table: pd.DataFrame = self._read(file)
        found = table.query(query) if query else table
        if found.empty:
            raise RunError(f"{self.root / file} has no rows with {query}: make it anew, or change the claim.")
        return found

    def row(self, file: str, query: str) -> pd.Series:
        """The one row of a CSV file that a pandas query chooses.

        Raises:
            FileNotFoundError: the file is not committed yet.
            RunError: it has none, or several.
        """
        found = self.rows(file, query)
        if len(found) > 1:
            raise RunError(f"{self.root / file} has {len(found)} rows with {query}; wanted one.")
        return found.iloc[0]

    def hardware(self, file: str) -> str:
        """What a file was measured on: by its own column, the JSON file beside it, or made_by.yaml.

        Raises:
            RunError: none of them says it.
        """
        table: pd.DataFrame = self._read(file)
        if "hardware" in table:
            return all_hardware(table)
        folder = (self.root / file).parent
        for path in sorted(folder.glob("*.json")):
            meta: dict[str, Any] = json.loads(path.read_text())
            if "cpu" in meta:
                return f"{meta.get('gpu') or meta['cpu']}, {meta['num_cores']} cores"
        if said := hardware_of(folder):
            return said
        raise RunError(f"{self.root / file}: no column, JSON file or made_by.yaml says on what hardware.")
