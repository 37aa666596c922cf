"""The description of one column of a run's rows, which all code that handles rows follows.

It is defined here because policies declare columns too, and policies must not depend on training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

RowKind = Literal["train", "eval", "policy"]
ROW_KINDS: tuple[RowKind, ...] = ("train", "eval", "policy")

ValueKind = Literal["count", "number", "share", "metric", "word", "scores"]
"""count: a whole number; number: a finite number; share: a number from 0 to 1; metric: a share, null where
undefined, or a dict of these by class; word: one of `words`; scores: a finite number for each of some scan
groups, as in {"5": 0.9} (JSON keys are strings)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The values of a column of `rows.jsonl`, and how they behave.

    The rows of several processes are combined into one: `combine="sum"` adds up what each process counted,
    and `"first"` takes the value of the first process, which is equal in all or measured by its own clock.
    """

    name: str
    unit: str
    """Unit, such as `s`, `bytes` or `images`; empty for a number without a unit."""
    meaning: str
    """A short phrase for readers."""
    rows: tuple[RowKind, ...] = ROW_KINDS
    """Kinds of row that have this column."""
    kind: ValueKind = "number"
    low: float = 0
    """Minimum value."""
    zero_before_training: bool = False
    """Whether `policy` rows may have 0, even below `low`, as a policy may decide before the first update."""
    nullable: bool = False
    """Whether null is allowed, if there was nothing to measure."""
    words: tuple[str, ...] = ()
    """Valid values of a `word`."""
    grows: bool = False
    """Whether it counts from the run's start, and so never falls from one row to the next."""
    deterministic: bool = True
    """Whether runs of one configuration have the same values on a CPU, interrupted or not."""
    combine: Literal["first", "sum"] = "first"
    presence: Literal["always", "optional", "team"] = "always"
    """optional: rows of some settings lack it; team: runs of several processes have it, together with all
    other such columns."""

    def problem(self, value: object, row_kind: RowKind) -> str | None:
        """Return what was wanted if the value is invalid in such a row, else None."""
        if value is None and self.nullable:
            return None
        if self.kind == "word":
            return None if value in self.words else " or ".join(self.words)
        if self.kind == "metric":
            return None if _is_metric(value) else "a finite number in [0, 1] or null, or one for each class"
        if self.kind == "scores":
            return None if _are_scores(value) else "a finite number for each scan group, as in {'5': 0.9}"
        low = 0 if self.zero_before_training and row_kind == "policy" else self.low
        high = 1.0 if self.kind == "share" else math.inf
        if _is_number(value, whole=self.kind == "count") and low <= value <= high:  # type: ignore[operator]
            return None
        number = "a whole number" if self.kind == "count" else "a finite number"
        return f"{number} in [{low:g}, {high:g}]{' or null' if self.nullable else ''}"


def _is_number(value: object, *, whole: bool = False) -> bool:
    types = (int,) if whole else (int, float)
    return isinstance(value, types) and not isinstance(value, bool) and math.isfinite(value)


def _is_metric(value: object) -> bool:
    shares: Iterable[Any] = value.values() if isinstance(value, dict) else [value]
    return all(share is None or (_is_number(share) and 0 <= share <= 1) for share in shares)


def _are_scores(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(group, str) and group.isdigit() and _is_number(score) for group, score in value.items()
    )
