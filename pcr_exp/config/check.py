"""Validation of settings by key. Bounds of one setting annotate its field; other rules call `require`.

In a configuration:

    @dataclass(kw_only=True, slots=True)
    class LoaderConfig:
        lanes: Annotated[int, at_least(1)] = 8

        def __post_init__(self) -> None:
            check_fields(self, "loader")
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from pcr_exp.errors import SettingError


@dataclass(frozen=True, slots=True)
class Bound:
    """A test of a setting's value, and a description of the valid values."""

    holds: Callable[[Any], bool]
    wanted: str


PATH: Final = object()
"""Annotation of a field that holds one or more paths, in which `~` is expanded to the home directory."""


def at_least(low: int, wanted: str = "") -> Bound:
    """Accept finite numbers from `low` up."""
    said = wanted or ("0 or more" if low == 0 else f"at least {low}")
    return Bound(lambda value: low <= value < math.inf, said)


def above(low: int, wanted: str = "") -> Bound:
    """Accept finite numbers above `low`."""
    return Bound(lambda value: low < value < math.inf, wanted or f"above {low}")


def one_of(*choices: str) -> Bound:
    """Accept one of these words."""
    return Bound(lambda value: value in choices, " or ".join(choices))


def or_null(bound: Bound, wanted: str = "") -> Bound:
    """Accept null, and whatever `bound` accepts."""
    return Bound(lambda value: value is None or bound.holds(value), wanted or f"null or {bound.wanted}")


def each(holds: Callable[[Any], bool], wanted: str) -> Bound:
    """Accept a list or dict whose values all satisfy `holds`."""
    return Bound(lambda given: all(map(holds, _items(given))), wanted)


def any_each(holds: Callable[[Any], bool], wanted: str) -> Bound:
    """Accept a non-empty list or dict whose values all satisfy `holds`."""
    return Bound(lambda given: bool(given) and all(map(holds, _items(given))), wanted)


def _items(given: Any) -> Iterable[Any]:
    return given.values() if isinstance(given, Mapping) else given


RATE = or_null(above(0), "a rate above 0, or null for no limit")
SHARE = Bound(lambda value: 0 < value <= 1, "a share in (0, 1]")
INNER_SHARE = Bound(lambda value: 0 < value < 1, "a share in (0, 1)")


def check_fields(config: object, prefix: str = "") -> None:
    """Expand the paths in a settings dataclass, and reject values outside their fields' bounds.

    Args:
        config: The settings. Bounds are in the annotations of its class and its base classes.
        prefix: The first part of its keys, such as `loader`.

    Raises:
        SettingError: names the key, the given value and the wanted values.
    """
    for name, marks in _marks(type(config)).items():  # type: ignore[arg-type]  # classes can be hashed
        value = getattr(config, name)
        for mark in marks:
            if isinstance(mark, Bound):
                require(_holds(mark, value), f"{prefix}.{name}" if prefix else name, value, mark.wanted)
            elif value is not None:
                setattr(config, name, expanded(value) if isinstance(value, str) else [*map(expanded, value)])


def _holds(bound: Bound, value: object) -> bool:
    try:
        return bound.holds(value)
    except TypeError:  # of another type, such as None for a number
        return False


@functools.cache
def _marks(schema: type) -> dict[str, list[Any]]:
    """Return each field's Bound and PATH annotations; those of a base hold unless a class has its own."""
    found: dict[str, list[Any]] = {}
    for cls in reversed(schema.__mro__):
        for name, hint in get_type_hints(cls, include_extras=True).items():
            beside = getattr(hint, "__metadata__", ())
            if marks := [mark for mark in beside if mark is PATH or isinstance(mark, Bound)]:
                found[name] = marks
    return found


def require(ok: bool, key: str, given: object, wanted: str) -> None:
    """Raise SettingError, which names the key, the given value and the wanted values, unless `ok`."""
    if not ok:
        raise SettingError(key, given, wanted)


def pair(key: str, values: Sequence[float]) -> tuple[float, float]:
    """Return the two numbers of a setting. Raises SettingError unless there are exactly two."""
    require(isinstance(values, Sequence) and len(values) == 2, key, values, "two numbers, [low, high]")
    return values[0], values[1]


def expanded(path: str) -> str:
    """Return a path with `~` expanded to the home directory; addresses such as s3://... stay unchanged."""
    return os.path.expanduser(path)  # noqa: PTH111 (a Path would make one slash of an address's two)
