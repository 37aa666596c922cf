"""Numbers from committed files, each with its interval, n and hardware."""

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
from scipy import optimize, stats

from experiments.claims.verdict import Range
from experiments.results.made_by import hardware_of
from experiments.results.measured_under import describe_numerics, numerics_of
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.intervals import half_of
from pcr_exp.analysis.reporting_rules import all_hardware, speedup_excluded_because
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.statistics import SEEDS_ALONE, half_width, paired_ratios
from pcr_exp.errors import RunError

POWER = 0.80


def found_at(half_width: float, freedom: float) -> float:
    """Return the true difference that a 95 % interval of this half width would detect with 80 % power.

    NaN if there is no interval.
    """
    if not freedom > 0:
        return float("nan")
    return half_width * _effect(round(float(freedom), 2)) / float(half_of(1.0, freedom))


@cache
def _effect(freedom: float) -> float:
    """Return the difference, in standard errors, that a two-sided 5 % t test detects with 80 % power."""
    quantiles = (np.arange(2000) + 0.5) / 2000
    known = np.isinf(freedom)
    errors = np.ones(1) if known else np.sqrt(stats.chi2.ppf(quantiles, freedom) / freedom)  # estimated/true
    critical = half_of(1.0, freedom) * errors

    def lacking(effect: float) -> float:
        power = stats.norm.sf(critical - effect) + stats.norm.cdf(-critical - effect)
        return float(power.mean()) - POWER

    return float(optimize.brentq(lacking, 0.0, 10 * float(half_of(1.0, freedom))))


OVER_REPEATS = "t over repeats"
"""Student's t over seeds or repeats, for numbers independent of images: seconds, bytes, their ratios."""
BOOTSTRAP = "bootstrap over images"
ALL = "smallest to largest"
RUNS = "runs"
"""Name of the packed set in a folder of results."""
EXACT = "exact"
"""For bytes and counts, which are the same in another run."""
NONE = "none"
MOST_REPEATS = 1000
"""Limit on the number of repeats to consider. A mean that needs more is practically on a bound."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One of our numbers, for a dataset, a setting or, with an empty `case`, overall."""

    case: str
    value: float
    low: float
    high: float
    n: int
    interval: str
    freedom: float = math.nan
    """Degrees of freedom of a t, infinite for a bootstrap; NaN for other intervals and for none."""
    holds: Range | None = None
    """Range in which this case holds; None: the range of its claim."""
    partly: Range | None = None
    """Range in which this case holds in part; None: the range of its claim."""

    @property
    def found(self) -> float:
        """Difference that would be detected with 80 % power; NaN without degrees of freedom."""
        return found_at((self.high - self.low) / 2, self.freedom)

    def repeats_that_would_tell(self, ranges: Iterable[Range]) -> int | None:
        """Return how many seeds or repeats would decide the verdict, if mean and scatter stay; None: unknown.

        It is known for intervals over two or more seeds or repeats alone. The interval must become narrow
        enough to contain no bound of the ranges.
        """
        bounds = {end for each in ranges for end in (each.low, each.high) if math.isfinite(end)}
        if self.interval not in (OVER_REPEATS, SEEDS_ALONE) or not self.freedom > 0 or not bounds:
            return None
        nearest = min(abs(self.value - bound) for bound in bounds)
        error = (self.high - self.low) / 2 / half_of(1.0, self.freedom) * math.sqrt(self.n)
        enough = (n for n in range(2, MOST_REPEATS) if half_of(error / math.sqrt(n), n - 1) < nearest)
        return next(enough, None)


def exactly(case: str, value: float, n: int = 1) -> Measured:
    """Return a number without scatter; `n` counts the images, tensors or files behind it."""
    return Measured(case, value, value, value, n, EXACT)


def mean_of(case: str, values: Iterable[float]) -> Measured:
    """Return the mean over seeds or repeats with its 95 % interval, or without one for a single value."""
    found = np.asarray(list(values), dtype=float)
    mean, ci95 = float(found.mean()), half_width(found)
    if math.isnan(ci95):
        return Measured(case, mean, math.nan, math.nan, len(found), NONE)
    return Measured(case, mean, mean - ci95, mean + ci95, len(found), OVER_REPEATS, len(found) - 1)


def mean_ratio(case: str, over: pd.DataFrame, under: pd.DataFrame, measure: str) -> Measured:
    """Return the mean ratio of a measure, `over` to `under`, by seed; NaN if no speed-up may be shown."""
    return mean_of(
        case, [math.nan] if speedup_excluded_because(over, under) else paired_ratios(over, under, measure)
    )


def difference_points(case: str, row: pd.Series) -> Measured:
    """Return a difference of scores in points, from a row with the columns `statistics.DIFFERENCE`."""
    mean, ci95 = (100 * float(row[f"difference_{part}"]) for part in ("mean", "ci95"))
    n = int(row["difference_n"])
    if math.isnan(ci95):
        return Measured(case, mean, math.nan, math.nan, n, NONE)
    interval, freedom = str(row["difference_interval"]), float(row["difference_freedom"])
    return Measured(case, mean, mean - ci95, mean + ci95, n, interval, freedom)


def all_of(case: str, values: Iterable[float]) -> Measured:
    """Return the median, smallest and largest of the values, for a claim about every one of them."""
    found = np.asarray(list(values), dtype=float)
    return Measured(case, float(np.median(found)), float(found.min()), float(found.max()), len(found), ALL)


class Committed:
    """Reader of the files below `results/`."""

    def __init__(self, root: Path) -> None:
        """Set the folder; nothing is read yet."""
        self.root = root
        self._read = cache(lambda file: pd.read_csv(root / file))
        self._runs = cache(lambda folder: run_frame(read_runs(root / folder / RUNS)))
        self.files: list[str] = []
        """Files and packed sets that were read since the last `forget`."""

    def forget(self) -> None:
        """Start a new list of `files`."""
        self.files = []

    def runs(self, folder: str) -> pd.DataFrame:
        """Return `run_frame` of a folder's packed set; empty if it has none."""
        if not (self.root / folder / RUNS).is_dir():
            return run_frame([])
        self.files.append(f"{folder}/{RUNS}")
        found: pd.DataFrame = self._runs(folder)
        return found

    def rows(self, file: str, query: str = "") -> pd.DataFrame:
        """Return the rows of a CSV file that match a pandas query.

        Raises:
            FileNotFoundError: the file is not committed yet.
            RunError: no row matches.
        """
        table: pd.DataFrame = self._read(file)
        self.files.append(file)
        found = table.query(query) if query else table
        if found.empty:
            raise RunError(f"{self.root / file} has no rows with {query}: make it anew, or change the claim.")
        return found

    def row(self, file: str, query: str) -> pd.Series:
        """Return the one row of a CSV file that matches a pandas query.

        Raises:
            FileNotFoundError: the file is not committed yet.
            RunError: no row matches, or several do.
        """
        found = self.rows(file, query)
        if len(found) > 1:
            raise RunError(f"{self.root / file} has {len(found)} rows with {query}; wanted one.")
        return found.iloc[0]

    def numerics(self) -> str:
        """Describe under which NUMERICS `files` were measured.

        Raises:
            RunError: numerics.csv has none for one of them.
        """
        return describe_numerics(numerics_of(self.root, file) for file in self.files)

    def hardware(self, file: str) -> str:
        """Describe the hardware that `file` and the other `files` were measured on, as far as it is recorded.

        Raises:
            RunError: it is recorded for none of them.
        """
        own = f"{file.rpartition('/')[0]}/{RUNS}"
        read = dict.fromkeys([file, *(one for one in self.files if one != own)])
        said = dict.fromkeys(part for one in read for part in self._hardware_of(one).split(" / ") if part)
        if not said and own in self.files:
            said = dict.fromkeys([self._hardware_of(own)])
        if said:
            return " / ".join(said)
        raise RunError(f"{self.root / file}: no column, JSON file or made_by.yaml says on what hardware.")

    def _hardware_of(self, file: str) -> str:
        """Return the hardware in the file's column, a JSON file next to it or made_by.yaml; else empty."""
        above, _, name = file.rpartition("/")
        table: pd.DataFrame = self._runs(above) if name == RUNS else self._read(file)
        if "hardware" in table:
            return all_hardware(table)
        folder = self.root / above
        for path in sorted(folder.glob("*.json")):
            meta: dict[str, Any] = json.loads(path.read_text())
            if "cpu" in meta:
                return f"{meta.get('gpu') or meta['cpu']}, {meta['num_cores']} cores"
        return hardware_of(folder) or ""
