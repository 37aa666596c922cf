"""Validate JSON from disk against a declared schema; errors name whatever does not match it.

A check is a function of (value, path) that raises `UnfitError` if the value is invalid. `path` locates the
value in messages, such as `records[3].num_samples`. Checks of containers call the checks of their parts.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], None]

MAX_WORD, MAX_HEX_KEY = 200, 64
"""Maximum number of characters of a word and of a key."""
_MAX_SHOWN = 60


_HEX_KEY = re.compile(f"[0-9a-f]{{0,{MAX_HEX_KEY}}}")
_BARE_WORD = re.compile(f"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{MAX_WORD - 1}}}")


class UnfitError(ValueError):
    """The bytes are not the expected JSON. The message names the path, the value and what is expected."""


def parse_json(data: bytes, max_bytes: int) -> Any:
    """Parse JSON, in memory of at most 64 x `max_bytes`.

    Stricter than `json.loads`: UTF-8 only, no duplicate keys in an object, no NaN or Infinity.

    Raises:
        UnfitError: more than `max_bytes` bytes, or invalid JSON.
    """
    if len(data) > max_bytes:
        raise UnfitError(f"it has {len(data)} bytes, more than the limit of {max_bytes}")
    try:
        return _DECODER.decode(data.decode())
    except RecursionError:
        raise UnfitError("it is not JSON as written by this program (nested too deeply)") from None
    except ValueError as error:
        raise UnfitError(f"it is not JSON ({error})") from None


def text(value: Any, path: str) -> None:
    """Require a string."""
    if type(value) is not str:
        raise _unfit(path, value, "text")


def hex_key(value: Any, path: str) -> None:
    """Require hexadecimal digits, at most MAX_HEX_KEY; empty for an unknown key."""
    if type(value) is not str or not _HEX_KEY.fullmatch(value):
        raise _unfit(path, value, "a key of hexadecimal digits")


def word(value: Any, path: str) -> None:
    """Require a bare name, which can be part of a path but never lead out of a folder."""
    if type(value) is not str or not _BARE_WORD.fullmatch(value):
        raise _unfit(path, value, "a bare name of letters, digits, '.', '_' and '-'")


def one_of(*choices: str) -> Check:
    """Return a check for one of a few words."""

    def check(value: Any, path: str) -> None:
        if type(value) is not str or value not in choices:
            raise _unfit(path, value, " or ".join(choices))

    return check


def whole(low: int, high: int) -> Check:
    """Return a check for an integer from `low` to `high`. True and 1.0 are rejected."""

    def check(value: Any, path: str) -> None:
        if type(value) is not int or not low <= value <= high:
            raise _unfit(path, value, f"a whole number from {low} to {high}")

    return check


def texts(value: Any, path: str) -> None:
    """Require a list of strings."""
    _list(value, path)
    if not set(map(type, value)) <= {str}:
        _each(text, value, path)


def wholes(low: int, high: int) -> Check:
    """Return a check for a list of integers from `low` to `high`."""
    check_one = whole(low, high)

    def check(value: Any, path: str) -> None:
        _list(value, path)
        if value and not (set(map(type, value)) == {int} and low <= min(value) and max(value) <= high):
            _each(check_one, value, path)

    return check


def list_of(check_one: Check) -> Check:
    """Return a check for a list whose items all pass `check_one`."""

    def check(value: Any, path: str) -> None:
        _list(value, path)
        _each(check_one, value, path)

    return check


def mapping_of(check_one: Check) -> Check:
    """Return a check for an object with any keys whose values all pass `check_one`."""

    def check(value: Any, path: str) -> None:
        _object(value, path)
        for key, part in value.items():
            check_one(part, f"{path}[{_shown(key)}]")

    return check


def fields(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, more: bool = False
) -> Check:
    """Return a check for an object with all `required` keys, any `optional` ones, others only with `more`."""
    known = {**required, **(optional or {})}

    def check(value: Any, path: str) -> None:
        _object(value, path)
        prefix = f"{path}." if path else ""
        for key in required:
            if key not in value:
                raise UnfitError(f"{prefix}{key} is missing")
        for key, part in value.items():
            if key in known:
                known[key](part, prefix + key)
            elif not more:
                raise UnfitError(f"{prefix}{_shown(key)} is not an allowed key")

    return check


def _unfit(path: str, value: Any, wanted: str) -> UnfitError:
    return UnfitError(f"{path or 'it'} is {_shown(value)}, wanted {wanted}")


def _shown(value: Any) -> str:
    shown = reprlib.repr(value)
    return shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + "..."


def _list(value: Any, path: str) -> None:
    if type(value) is not list:
        raise _unfit(path, value, "a list")


def _object(value: Any, path: str) -> None:
    if type(value) is not dict:
        raise _unfit(path, value, "an object with named fields")


def _each(check_one: Check, values: list[Any], path: str) -> None:
    for i, value in enumerate(values):
        check_one(value, f"{path}[{i}]")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {_shown(twice)} occurs twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
"""Created once, because creating it takes longer than parsing a small header."""
