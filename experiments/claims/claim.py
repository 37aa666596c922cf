"""Claims as declared in claims.yaml, and their rows in the table: published, measured, verdict."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pandas as pd
import yaml

from experiments.claims.committed import NONE, Committed, Measured
from experiments.claims.measures import pcr, related_methods
from experiments.claims.verdict import (
    EQUAL,
    FAILS,
    HOLDS,
    IN_PART,
    NEAR,
    NOT_HERE,
    NOT_YET,
    RECALLED,
    UNDECIDED,
    Range,
    around,
    at_least,
    at_most,
    half_the_gain,
    too_short,
    verdict,
    verdict_of_stand_in,
    verdict_over_cases,
)
from experiments.pcr.learning import metric_of_file
from pcr_exp.errors import ConfigError, RunError

_RECALLED = "recalled, "
CERTAINTIES = {
    "read": "read in the source",
    "summary": "read in a summary by others",
    "sure": f"{_RECALLED}sure",
    "fairly_sure": f"{_RECALLED}fairly sure",
    "unsure": f"{_RECALLED}unsure",
}
"""Descriptions of how certain it is that something was published."""
COLUMNS = [
    *("system", "claim", "says", "source", "published", "certainty", "ours", "case", "value", "low", "high"),
    *("unit", "interval", "freedom", "n", "found", "holds", "in_part", "of_case", "verdict", "why"),
    *("hardware", "numerics", "shown_in", "file", "command", "cost"),
]


Measure = Callable[[Committed, str], list[Measured]]
"""Returns the numbers of a claim, one per case, from the committed files and the claim's file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A falsifiable statement of a paper, and what decides it."""

    name: str
    says: str
    source: str
    """Where it is in the paper."""
    published: str
    certainty: str
    """How certain it is that this was published (CERTAINTIES)."""
    shown_in: str = ""
    """Page, figure or table that shows it, relative to `results/`; empty if there is none yet."""
    headline: str = ""
    """For claims in the short table, which the README shows too: the experiment that measures it."""
    ours: str = ""
    """Description of our numbers that decide it."""
    unit: str = ""
    file: str = ""
    """The committed file that `measure` reads, relative to `results/`."""
    measure: Measure | None = None
    holds: Range | None = None
    """Range of the numbers for which the claim holds, unless cases have ranges of their own."""
    partly: Range | None = None
    """Range for which the claim holds in part. Without the effect, no number is in it."""
    is_accuracy: bool = False
    """Whether it is about trained accuracy. Trainings that were too short then prove nothing."""
    stands_in: str = ""
    """Why our experiment only stands in for the paper's; empty if they are the same."""
    command: str = ""
    """Command that would decide it, if nothing does yet."""
    cost: str = ""
    not_here: str = ""
    """Why it cannot be tested here."""


def claims_frame(systems: Iterable[tuple[str, Sequence[Claim]]], committed: Committed) -> pd.DataFrame:
    """Return COLUMNS: a row per claim and case, in the order of the declarations.

    `value`, `low`, `high` and `found`, the difference detectable with 80 % power, are in `unit`. `holds` and
    `in_part` are the ranges for the interval. `of_case` is the verdict on the case, `verdict` the one on the
    claim. `numerics` names the NUMERICS under which its files were measured.

    Raises:
        RunError: a file that decides a claim is missing or lacks its rows.
    """
    rows = [
        {"system": system, **row}
        for system, claims in systems
        for claim in claims
        for row in judge(claim, committed)
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"n": "Int64"})


def judge(claim: Claim, committed: Committed) -> list[dict[str, Any]]:
    """Return the rows of one claim; a single row without numbers if nothing was measured.

    Raises:
        RunError: as `claims_frame`.
    """
    said = {
        **{key: getattr(claim, key) for key in ("says", "source", "published", "certainty", "ours", "unit")},
        **{key: getattr(claim, key) for key in ("shown_in", "file", "command", "cost")},
        "claim": claim.name,
    }
    if claim.not_here:
        return [{**said, "verdict": NOT_HERE, "why": claim.not_here}]
    committed.forget()
    measured = _measure(claim, committed)
    if not measured:
        return [{**said, "verdict": NOT_YET, "why": "no committed run or measurement decides it"}]
    wanted = [ranges_of(claim, each) for each in measured]
    of_cases = [
        verdict(each.low, each.high, holds, partly)
        for each, (holds, partly) in zip(measured, wanted, strict=True)
    ]
    numerics = committed.numerics()
    found, why = _over_cases(claim, of_cases, measured, _too_short(claim, committed))
    hardware = committed.hardware(claim.file)
    return [
        {
            **said,
            **{key: getattr(each, key) for key in ("case", "value", "low", "high", "interval", "n")},
            **{key: getattr(each, key) for key in ("freedom", "found")},
            "holds": str(holds),
            "in_part": "" if partly is None else str(partly),
            "of_case": of_case,
            "verdict": found,
            "why": why,
            "hardware": hardware,
            "numerics": numerics,
        }
        for each, (holds, partly), of_case in zip(measured, wanted, of_cases, strict=True)
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


def ranges_of(claim: Claim, measured: Measured) -> tuple[Range, Range | None]:
    """Return the range in which a case of a claim holds, and the one in which it holds in part."""
    holds = measured.holds or claim.holds
    assert holds is not None, f"{claim.name}: where must its numbers lie?"
    return holds, measured.partly or claim.partly


def _too_short(claim: Claim, committed: Committed) -> str:
    """Return why the trainings behind a claim of accuracy are too short to compare; empty if they are not."""
    files = [Path(file) for file in dict.fromkeys(committed.files)] if claim.is_accuracy else []
    reasons = (too_short(committed.runs(str(file.parent)), metric_of_file(file.stem)) for file in files)
    return next((reason for reason in reasons if reason), "")


def _over_cases(
    claim: Claim, of_cases: Sequence[str], measured: Sequence[Measured], too_short_because: str
) -> tuple[str, str]:
    if too_short_because:
        return NOT_YET, too_short_because
    found = verdict_over_cases(of_cases)
    why = _reason(claim, found, of_cases, measured)
    if claim.stands_in:
        return verdict_of_stand_in(found), f"{why}; {claim.stands_in}"
    if found == FAILS and claim.certainty.startswith(_RECALLED):
        return RECALLED, f"it would be *{FAILS}* ({why}), were it certain that this was published"
    return found, why


def _reason(claim: Claim, found: str, of_cases: Sequence[str], measured: Sequence[Measured]) -> str:
    needed = _needed(claim, of_cases, measured) if found == UNDECIDED else ""
    if len(set(of_cases)) > 1:
        counts = [f"{each} in {of_cases.count(each)}" for each in dict.fromkeys(of_cases)]
        return f"of {len(of_cases)} cases: {', '.join(counts)}{needed}"
    if all(each.interval == NONE for each in measured):
        return f"n = {measured[0].n}: no interval"
    of_each = measured[0].holds is not None
    holds, partly = ("what was published", "half of that gain") if of_each else ranges_of(claim, measured[0])
    return {
        HOLDS: f"all {holds}",
        IN_PART: f"all {partly}, not all {holds}",
        FAILS: f"wanted {holds}" + ("" if partly is None else f", in part {partly}"),
        UNDECIDED: f"the interval does not tell whether it is {holds}, or in part {partly}{needed}",
    }[found]


def _needed(claim: Claim, of_cases: Sequence[str], measured: Sequence[Measured]) -> str:
    """Describe how many repeats would decide the undecided cases; empty if that is unknown."""
    counts = [
        each.repeats_that_would_tell([one for one in ranges_of(claim, each) if one is not None])
        for each, of_case in zip(measured, of_cases, strict=True)
        if of_case == UNDECIDED
    ]
    known = [count for count in counts if count is not None]
    return (
        f"; if mean and scatter stay, n = {max(known)} would" if known and len(known) == len(counts) else ""
    )


CLAIMS_FILE = Path(__file__).with_name("claims.yaml")
MEASURES: dict[str, Callable[..., Any]] = {
    name: function
    for module in (pcr, related_methods)
    for name, function in vars(module).items()
    if isinstance(function, FunctionType) and function.__module__ == module.__name__ and name[0] != "_"
}
RANGES: dict[str, Callable[[Any], Range]] = {
    "at_least": at_least,
    "at_most": at_most,
    "between": lambda ends: Range(*ends),
    "same_as": lambda number: around(number, EQUAL),
    "near": lambda number: around(number, NEAR),
    "half_the_gain_of": half_the_gain,
}
_NEEDED = ("name", "says", "source", "published", "certainty")
_KNOWN = {field.name for field in fields(Claim)} | {"less_certain", "arguments"}


def read_claims() -> list[tuple[str, list[Claim]]]:
    """Read all claims, by the system that makes them.

    Raises:
        ConfigError: a claim has an unknown key or value, or lacks a key.
    """
    declared: dict[str, list[dict[str, Any]]] = yaml.safe_load(CLAIMS_FILE.read_text())
    return [(system, [claim_of(entry) for entry in entries]) for system, entries in declared.items()]


def claim_of(entry: Mapping[str, Any]) -> Claim:
    """Build a claim from an entry of claims.yaml. Raises ConfigError as `read_claims`."""
    name = entry.get("name", "without a name")
    for key in entry:
        _require_known(name, "key", key, _KNOWN)
    if missing := [key for key in _NEEDED if not entry.get(key)]:
        raise ConfigError(f"claims.yaml: claim {name!r} lacks {', '.join(missing)}. Add what the paper says.")
    read = {key: value for key, value in entry.items() if key not in ("less_certain", "arguments")}
    read["certainty"] = _certainty(name, entry["certainty"], entry.get("less_certain", {}))
    for key in ("holds", "partly"):
        if key in entry:
            read[key] = _range(name, key, entry[key])
    if "measure" in entry:
        read["measure"] = _measure_of(name, entry["measure"], entry.get("arguments", {}))
    return Claim(**read)


def _certainty(name: str, level: str, parts: Mapping[str, str]) -> str:
    """Describe the certainty, as `read in the source (the group: recalled, fairly sure)`."""
    for each in (level, *parts.values()):
        _require_known(name, "certainty", each, CERTAINTIES)
    less = "".join(f" ({what}: {CERTAINTIES[how]})" for what, how in parts.items())
    return CERTAINTIES[level] + less


def _range(name: str, key: str, given: Any) -> Range:
    if not isinstance(given, Mapping) or len(given) != 1:
        raise ConfigError(
            f"claims.yaml: claim {name!r} has {key}: {given!r}; "
            f"wanted one of {', '.join(sorted(RANGES))} with its number."
        )
    ((kind, ends),) = given.items()
    _require_known(name, key, kind, RANGES)
    return RANGES[kind](ends)


def _measure_of(name: str, function: str, arguments: Mapping[str, Any]) -> Measure:
    _require_known(name, "measure", function, MEASURES)
    measure = MEASURES[function]
    try:
        inspect.signature(measure).bind(None, "", **arguments)
    except TypeError as error:
        raise ConfigError(
            f"claims.yaml: claim {name!r} gives {function} the arguments {dict(arguments)}: "
            f"{error}. Give those that the function in claims/measures takes."
        ) from error
    return partial(measure, **arguments)


def _require_known(name: str, what: str, given: str, known: Collection[str]) -> None:
    if given not in known:
        raise ConfigError(
            f"claims.yaml: claim {name!r} has the {what} {given!r}; wanted one of {', '.join(sorted(known))}."
        )
