"""Refusing a value by its key."""

from __future__ import annotations

from pcr_exp.errors import ConfigError


def require(ok: bool, key: str, given: object, wanted: str) -> None:
    if not ok:
        raise ConfigError(f"{key}={given!r}: wanted {wanted}.")


def pair(key: str, values: list[float]) -> tuple[float, float]:
    require(len(values) == 2, key, values, "two numbers, [low, high]")
    return values[0], values[1]
