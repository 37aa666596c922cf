"""Conditions of measurement of a page's numbers: n, interval, NUMERICS and commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from pcr_exp.analysis.caption import describe_repeats

COMMIT_DIGITS = 7


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """Numbers that were measured under the same conditions."""

    of: str
    n: str
    interval: str
    numerics: tuple[int, ...]
    commits: tuple[str, ...]


def set_of_runs(of: str, frame: pd.DataFrame, intervals: Iterable[str]) -> MeasuredSet:
    """Return the set of runs in a `run_frame`; `intervals` are the kinds in their tables (DIFFERENCE)."""
    known = [kind for kind in dict.fromkeys(intervals) if isinstance(kind, str) and kind]
    commits = (commit or "not recorded" for commit in frame["git_sha"])
    return MeasuredSet(
        of,
        describe_repeats(frame),
        f"{' / '.join(known)}, 95 %" if known else "none",
        tuple(sorted(set(frame["numerics"]))),
        tuple(dict.fromkeys(commit[:COMMIT_DIGITS] if " " not in commit else commit for commit in commits)),
    )


def measured_line(frame: pd.DataFrame, intervals: Iterable[str]) -> str:
    """Return the last line of a page of tables of runs, with a blank line before it."""
    found = set_of_runs("", frame, intervals)
    return (
        f"\nMeasured: n = {found.n}; interval: {found.interval}; NUMERICS "
        f"{' and '.join(map(str, found.numerics))}; commit {', '.join(found.commits)}.\n"
    )
