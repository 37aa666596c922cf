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
    """The names that sets such as `cat;dog` are made of, in alphabetical order."""
    return sorted({name for names in sets for name in names.split(SEPARATOR) if name})


def multi_hot(sets: Sequence[str]) -> NDArray[np.uint8]:
    """Uint8 [sets, members]: 1 where a set has a member, by `members_of`."""
    import numpy as np  # not needed to compose a configuration, for which tasks are imported

    column_of = {name: i for i, name in enumerate(members_of(sets))}
    found = np.zeros((len(sets), len(column_of)), dtype=np.uint8)
    for row, names in zip(found, sets, strict=True):
        row[[column_of[name] for name in names.split(SEPARATOR) if name]] = 1
    return found


def number_of(name: str) -> float | None:
    """The finite number that a class's name is; None if it is none."""
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
