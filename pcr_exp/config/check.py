"""Refusing a value by its key."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pcr_exp.errors import SettingError


def require(ok: bool, key: str, given: object, wanted: str) -> None:
    """Raise SettingError, which says the key, what was given and what was wanted, unless `ok`."""
    if not ok:
        raise SettingError(key, given, wanted)


def pair(key: str, values: Sequence[float]) -> tuple[float, float]:
    """Return the two numbers of a setting. Raises SettingError unless there are two."""
    require(isinstance(values, Sequence) and len(values) == 2, key, values, "two numbers, [low, high]")
    return values[0], values[1]


def expanded(path: str) -> str:
    """A path with `~` replaced by the home it stands for; addresses such as s3://... stay as they are."""
    return os.path.expanduser(path)  # noqa: PTH111 (a Path would make one slash of an address's two)
