"""The claims of claims.yaml, checked: keys, how certain they are, where they hold, what measures them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import yaml

from experiments.claims import measures
from experiments.claims.claim import CERTAINTIES, Claim, Measure
from experiments.claims.verdict import EQUAL, NEAR, Range, around, at_least, at_most, half_the_gain
from pcr_exp.errors import ConfigError

CLAIMS_FILE = Path(__file__).with_name("claims.yaml")
MEASURES: dict[str, Callable[..., Any]] = {
    name: function
    for name, function in vars(measures).items()
    if isinstance(function, FunctionType) and function.__module__ == measures.__name__ and name[0] != "_"
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


def read_claims(path: Path = CLAIMS_FILE) -> list[tuple[str, list[Claim]]]:
    """Every claim, by the system that makes it.

    Raises:
        ConfigError: a claim has an unknown key, lacks one, or a value is none of those that are known.
    """
    declared: dict[str, list[dict[str, Any]]] = yaml.safe_load(path.read_text())
    return [(system, [claim_of(entry) for entry in entries]) for system, entries in declared.items()]


def claim_of(entry: Mapping[str, Any]) -> Claim:
    """One claim from an entry of claims.yaml. Raises ConfigError as `read_claims`."""
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
        read["measure"] = _measure(name, entry["measure"], entry.get("arguments", {}))
    return Claim(**read)


def _certainty(name: str, level: str, parts: Mapping[str, str]) -> str:
    """`read in the source (the group: recalled, fairly sure)`."""
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


def _measure(name: str, function: str, arguments: Mapping[str, Any]) -> Measure:
    _require_known(name, "measure", function, MEASURES)
    measure = MEASURES[function]
    try:
        inspect.signature(measure).bind(None, "", **arguments)
    except TypeError as error:
        raise ConfigError(
            f"claims.yaml: claim {name!r} gives {function} the arguments {dict(arguments)}: "
            f"{error}. Give those that the function in measures.py takes."
        ) from error
    return partial(measure, **arguments)


def _require_known(name: str, what: str, given: str, known: Collection[str]) -> None:
    if given not in known:
        raise ConfigError(
            f"claims.yaml: claim {name!r} has the {what} {given!r}; wanted one of {', '.join(sorted(known))}."
        )
