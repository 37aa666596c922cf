"""Bounds are declared with the fields of settings, and errors name the settings' keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest

from pcr_exp.config.check import PATH, any_each, at_least, check_fields, or_null
from pcr_exp.errors import SettingError


@dataclass(kw_only=True, slots=True)
class Base:
    count: Annotated[int, at_least(1)] = 1
    limit: Annotated[int | None, or_null(at_least(2))] = None

    def __post_init__(self) -> None:
        check_fields(self, "mine")


@dataclass(kw_only=True, slots=True)
class Derived(Base):
    count: int = 3
    limit: Annotated[int | None, or_null(at_least(5))] = None
    roots: Annotated[list[str], PATH, any_each(bool, "names")] = field(
        default_factory=lambda: ["~/a", "s3://b"]
    )
    out: Annotated[str | None, PATH] = None


def refused(make: type[Base], **given: object) -> tuple[str, object, str]:
    with pytest.raises(SettingError) as found:
        make(**given)  # type: ignore[arg-type]
    return found.value.key, found.value.given, found.value.wanted


def test_a_field_is_refused_by_key_value_and_remedy() -> None:
    assert refused(Base, count=0) == ("mine.count", 0, "at least 1")
    assert refused(Base, limit=1) == ("mine.limit", 1, "null or at least 2")
    assert refused(Base, count=float("inf"))[0] == "mine.count"
    for other in (None, "three"):
        assert refused(Base, count=other) == ("mine.count", other, "at least 1")


def test_a_bound_of_a_base_holds_unless_a_class_has_its_own() -> None:
    assert refused(Derived, count=0) == ("mine.count", 0, "at least 1")
    assert refused(Derived, limit=4) == ("mine.limit", 4, "null or at least 5")


def test_paths_are_expanded_and_addresses_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    made = Derived(out="~")
    assert (made.roots, made.out, Derived().out) == (["/home/me/a", "s3://b"], "/home/me", None)
    assert refused(Derived, roots=[]) == ("mine.roots", [], "names")
