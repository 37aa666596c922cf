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
from scipy import optimize, stats

from experiments.claims.verdict import Range
from experiments.results.made_by import hardware_of
from experiments.results.measured_under import numerics_of, numerics_words
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.intervals import half_of
from pcr_exp.analysis.reporting_rules import all_hardware, may_say_speedup
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.statistics import SEEDS_ALONE, half_width, paired_ratios
from pcr_exp.errors import RunError

POWER = 0.80


def found_at(half_width: float, freedom: float) -> float:
    """The true difference that a 95 % interval of this half width would have shown with 80 % power.

    NaN where there is no interval.
    """
    if not freedom > 0:
        return float("nan")
    return half_width * _effect(round(float(freedom), 2)) / float(half_of(1.0, freedom))


@cache
def _effect(freedom: float) -> float:
    """The difference in standard errors that a two-sided t test of level 5 % finds with 80 % power."""
    quantiles = (np.arange(2000) + 0.5) / 2000
    known = np.isinf(freedom)
    errors = np.ones(1) if known else np.sqrt(stats.chi2.ppf(quantiles, freedom) / freedom)  # over the true
    critical = half_of(1.0, freedom) * errors

    def lacking(effect: float) -> float:
        power = stats.norm.sf(critical - effect) + stats.norm.cdf(-critical - effect)
        return float(power.mean()) - POWER

    return float(optimize.brentq(lacking, 0.0, 10 * float(half_of(1.0, freedom))))


OVER_REPEATS = "t over repeats"
"""Student's t over seeds or repeats of what does not depend on images: seconds, bytes, ratios of them."""
BOOTSTRAP = "bootstrap over images"
ALL = "smallest to largest"
RUNS = "runs"
"""Where a folder of results has its packed set."""
EXACT = "exact"
"""Bytes and counts: another run gives the same."""
NONE = "none"
MOST_REPEATS = 1000
"""More than these nobody will run: the mean lies on a bound."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One number of ours: of a dataset, a setting or of all there is (`case` is empty)."""

    case: str
    value: float
    low: float
    high: float
    n: int
    interval: str
    freedom: float = math.nan
    """Degrees of freedom of a t; NaN where there is no interval that they are of."""
    holds: Range | None = None
    """Where this case must lie, if not where all cases of its claim must."""
    partly: Range | None = None
    """The same of where it holds in part."""

    @property
    def found(self) -> float:
        """What difference would have been found with 80 % power; NaN where nothing scatters or is known."""
        return found_at((self.high - self.low) / 2, self.freedom)

    def repeats_that_would_tell(self, ranges: Iterable[Range]) -> int | None:
        """How many seeds or repeats would give a verdict, if mean and scatter stay; None: not known.

        It is known where they alone make the interval, of two or more. The interval must come to lie between
        two bounds of the ranges.
        """
        bounds = {end for each in ranges for end in (each.low, each.high) if math.isfinite(end)}
        if self.interval not in (OVER_REPEATS, SEEDS_ALONE) or not self.freedom > 0 or not bounds:
            return None
        nearest = min(abs(self.value - bound) for bound in bounds)
        error = (self.high - self.low) / 2 / half_of(1.0, self.freedom) * math.sqrt(self.n)
        enough = (n for n in range(2, MOST_REPEATS) if half_of(error / math.sqrt(n), n - 1) < nearest)
        return next(enough, None)


def exactly(case: str, value: float, n: int = 1) -> Measured:
    """A number that does not scatter; `n` is how many images, tensors or files it is of."""
    return Measured(case, value, value, value, n, EXACT)


def mean_of(case: str, values: Iterable[float]) -> Measured:
    """The mean over seeds or repeats with its 95 % interval; none if there is one value alone."""
    found = np.asarray(list(values), dtype=float)
    mean, ci95 = float(found.mean()), half_width(found)
    if math.isnan(ci95):
        return Measured(case, mean, math.nan, math.nan, len(found), NONE)
    return Measured(case, mean, mean - ci95, mean + ci95, len(found), OVER_REPEATS, len(found) - 1)


def mean_ratio(case: str, over: pd.DataFrame, under: pd.DataFrame, measure: str) -> Measured:
    """The mean of a measure of `over` by that of `under`, same seed; NaN where no speed-up may be said."""
    return mean_of(case, [math.nan] if may_say_speedup(over, under) else paired_ratios(over, under, measure))


def difference_points(case: str, row: pd.Series) -> Measured:
    """A difference of scores in points, from a row with the columns `statistics.DIFFERENCE`."""
    mean, ci95 = (100 * float(row[f"difference_{part}"]) for part in ("mean", "ci95"))
    n = int(row["difference_n"])
    if math.isnan(ci95):
        return Measured(case, mean, math.nan, math.nan, n, NONE)
    interval, freedom = str(row["difference_interval"]), float(row["difference_freedom"])
    return Measured(case, mean, mean - ci95, mean + ci95, n, interval, freedom)


def all_of(case: str, values: Iterable[float]) -> Measured:
    """The median of a claim about every one of the values, from the smallest to the largest of them."""
    found = np.asarray(list(values), dtype=float)
    return Measured(case, float(np.median(found)), float(found.min()), float(found.max()), len(found), ALL)


class Committed:
    """The files below `results/`."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is read yet."""
        self.root = root
        self._read = cache(lambda file: pd.read_csv(root / file))
        self._runs = cache(lambda folder: run_frame(read_runs(root / folder / RUNS)))
        self.files: list[str] = []
        """What was read since the last `forget`."""

    def forget(self) -> None:
        """Begin a new list of `files`."""
        self.files = []

    def runs(self, folder: str) -> pd.DataFrame:
        """`run_frame` of the packed set of a folder; empty if it has no set."""
        if not (self.root / folder / RUNS).is_dir():
            return run_frame([])
        self.files.append(f"{folder}/{RUNS}")
        found: pd.DataFrame = self._runs(folder)
        return found

    def rows(self, file: str, query: str = "") -> pd.DataFrame:
        """The rows of a CSV file that a pandas query chooses.

        Raises:
            FileNotFoundError: the file is not committed yet.
            RunError: it has no such rows.
        """
        table: pd.DataFrame = self._read(file)
        self.files.append(file)
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

    def numerics(self) -> str:
        """Under which NUMERICS `files` were measured, in words.

        Raises:
            RunError: numerics.csv does not say it of one.
        """
        return numerics_words(numerics_of(self.root, file) for file in self.files)

    def hardware(self, file: str) -> str:
        """What `file` and the other `files` were measured on, as far as they say it.

        Raises:
            RunError: none of them does.
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
        """By its own column, the JSON file beside it, or made_by.yaml; empty if none says it."""
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
