"""What a claim is, and the rows that it becomes: what was published, what was measured, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcr_exp.analysis.claims.committed import NONE, Committed, Measured
from pcr_exp.analysis.claims.verdict import (
    FAILS,
    HOLDS,
    IN_PART,
    NOT_HERE,
    NOT_YET,
    UNDECIDED,
    Range,
    verdict,
    verdict_of_stand_in,
    verdict_over_cases,
)
from pcr_exp.errors import RunError

READ = "read in the source"
SUMMARY = "read in a summary by others"
SURE, FAIRLY_SURE, UNSURE = (f"recalled, {how}" for how in ("sure", "fairly sure", "unsure"))
TRAINED_TOO_LITTLE = (
    *("archive", "changing_bandwidth", "combined", "compressed_activations", "decode_modes", "echo_factor"),
    "gradients",
)
"""Folders whose trainings were too short to compare accuracies, as archive/README.md says."""
COLUMNS = [
    *("system", "claim", "says", "source", "published", "certainty", "ours", "case", "value", "low", "high"),
    *("unit", "interval", "n", "holds", "in_part", "of_case", "verdict", "why", "hardware", "shown_in"),
    *("file", "command", "cost"),
]


Measure = Callable[[Committed, str], list[Measured]]
"""The numbers of a claim, one per case, out of the committed files; given the claim's file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One sentence of a paper that can be wrong, and what decides it."""

    name: str
    says: str
    source: str
    """Where in the paper."""
    published: str
    certainty: str
    """How sure it is that this was published: READ, SUMMARY, SURE, FAIRLY_SURE or UNSURE."""
    shown_in: str
    """The page, figure or table for people, below `results/`; empty if there is none yet."""
    ours: str = ""
    """What of ours decides it, in words."""
    unit: str = ""
    file: str = ""
    """The committed file that `measure` reads, below `results/`."""
    measure: Measure | None = None
    holds: Range | None = None
    """Where the numbers must lie, if all cases must lie in the same place."""
    partly: Range | None = None
    """Where the claim holds in part."""
    is_accuracy: bool = False
    """It is about what is learned, so that trainings that were too short say nothing."""
    stands_in: str = ""
    """Why the numbers only stand for what the paper did; empty if they are the same experiment."""
    command: str = ""
    """What would decide it, where nothing does yet."""
    cost: str = ""
    not_here: str = ""
    """Why it cannot be tested here."""


def claims_frame(systems: Iterable[tuple[str, Sequence[Claim]]], committed: Committed) -> pd.DataFrame:
    """COLUMNS: a row per claim and case, in the order of the declarations.

    `value`, `low` and `high` are in `unit`; `holds` and `in_part` say where they must lie; `of_case` is the
    verdict on the case, `verdict` the one on the claim.

    Raises:
        RunError: a file that a claim is decided by is missing or lacks its rows.
    """
    rows = [
        {"system": system, **row}
        for system, claims in systems
        for claim in claims
        for row in judge(claim, committed)
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"n": "Int64"})


def judge(claim: Claim, committed: Committed) -> list[dict[str, Any]]:
    """The rows of one claim; one without numbers where nothing was measured.

    Raises:
        RunError: as `claims_frame`.
    """
    said = {
        **{key: getattr(claim, key) for key in ("says", "source", "published", "certainty", "ours", "unit")},
        **{key: getattr(claim, key) for key in ("shown_in", "file", "command", "cost")},
        "claim": claim.name,
        "in_part": "" if claim.partly is None else str(claim.partly),
    }
    if claim.not_here:
        return [{**said, "verdict": NOT_HERE, "why": claim.not_here}]
    measured = _measure(claim, committed)
    if not measured:
        return [{**said, "verdict": NOT_YET, "why": "no committed run or measurement decides it"}]
    wanted = [_wanted(claim, each) for each in measured]
    of_cases = [
        verdict(each.low, each.high, holds, claim.partly)
        for each, holds in zip(measured, wanted, strict=True)
    ]
    found, why = _over_cases(claim, of_cases, measured)
    hardware = committed.hardware(claim.file)
    return [
        {
            **said,
            **{key: getattr(each, key) for key in ("case", "value", "low", "high", "interval", "n")},
            "holds": str(holds),
            "of_case": of_case,
            "verdict": found,
            "why": why,
            "hardware": hardware,
        }
        for each, holds, of_case in zip(measured, wanted, of_cases, strict=True)
    ]


def _measure(claim: Claim, committed: Committed) -> list[Measured]:
    if claim.measure is None:
        return []
    try:
        return claim.measure(committed, claim.file)
    except FileNotFoundError as error:
        if claim.command:
            return []
        raise RunError(
            f"claim {claim.name!r}: {error.filename} is missing. Fetch results/ anew, or give the claim the "
            "command that would make it."
        ) from error


def _wanted(claim: Claim, measured: Measured) -> Range:
    holds = measured.holds or claim.holds
    assert holds is not None, f"{claim.name}: where must its numbers lie?"
    return holds


def _over_cases(claim: Claim, of_cases: Sequence[str], measured: Sequence[Measured]) -> tuple[str, str]:
    if claim.is_accuracy and claim.file.split("/")[0] in TRAINED_TOO_LITTLE:
        return NOT_YET, "these trainings were too short to compare accuracies"
    found = verdict_over_cases(of_cases)
    if claim.stands_in:
        return verdict_of_stand_in(found), f"{_reason(claim, found, of_cases, measured)}; {claim.stands_in}"
    return found, _reason(claim, found, of_cases, measured)


def _reason(claim: Claim, found: str, of_cases: Sequence[str], measured: Sequence[Measured]) -> str:
    if len(set(of_cases)) > 1:
        counts = [f"{found} in {of_cases.count(found)}" for found in dict.fromkeys(of_cases)]
        return f"of {len(of_cases)} cases: {', '.join(counts)}"
    if all(each.interval == NONE for each in measured):
        return f"n = {measured[0].n}: no interval"
    wanted = str(_wanted(claim, measured[0])) if measured[0].holds is None else "what was published"
    return {
        HOLDS: f"all {wanted}",
        IN_PART: f"all {claim.partly}, not all {wanted}",
        FAILS: f"wanted {wanted}",
        UNDECIDED: f"the interval does not tell whether it is {wanted}",
    }[found]
