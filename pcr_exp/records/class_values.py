"""Class names that stand for sets of names or for numbers (FORMAT.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pcr_exp.config.dataset import SEPARATOR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def members_of(sets: Sequence[str]) -> list[str]:
    """Return the distinct names in sets such as `cat;dog`, in alphabetical order."""
    return sorted({name for names in sets for name in names.split(SEPARATOR) if name})


def multi_hot(sets: Sequence[str]) -> NDArray[np.uint8]:
    """Return uint8 [sets, members]: 1 where a set has a member, in the order of `members_of`."""
    import numpy as np  # not needed to compose a configuration, which imports tasks

    column_of = {name: i for i, name in enumerate(members_of(sets))}
    found = np.zeros((len(sets), len(column_of)), dtype=np.uint8)
    for row, names in zip(found, sets, strict=True):
        row[[column_of[name] for name in names.split(SEPARATOR) if name]] = 1
    return found


def number_of(name: str) -> float | None:
    """Parse a class name as a finite number; None if it is not one."""
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
