"""Refusing a value by its key."""

from __future__ import annotations

import os

from pcr_exp.errors import ConfigError


def require(ok: bool, key: str, given: object, wanted: str) -> None:
    """Raise ConfigError, which says the key, what was given and what was wanted, unless `ok`."""
    if not ok:
        raise ConfigError(f"{key}={given!r}: wanted {wanted}.")


def pair(key: str, values: list[float]) -> tuple[float, float]:
    """Return the two numbers of a setting. Raises ConfigError unless there are two."""
    require(len(values) == 2, key, values, "two numbers, [low, high]")
    return values[0], values[1]


def expanded(path: str) -> str:
    """A path with `~` replaced by the home it stands for; addresses such as s3://... stay as they are."""
    return os.path.expanduser(path)  # noqa: PTH111 (a Path would make one slash of an address's two)
