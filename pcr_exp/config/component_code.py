"""The user's own code that a configuration runs, which is part of the identity of its results.

Components of this package are covered by `pcr_exp.numerics`. A user's component is covered by its source: its
own module, that of its settings, and all that these import from the same package or, if that is not
installed, from the folder that contains it. For an installed package, the version also counts.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions, version
from pathlib import Path

from pcr_exp.config.components import Component, chosen_by, component, names

log = logging.getLogger(__name__)

_OURS = "pcr_exp"
_CODECS = "images.codec"
"""Group whose options have no settings; `records.codec` names one of them."""


def component_code(config: object) -> dict[str, str]:
    """Return the user's own code that a configuration runs; empty if all of its components are ours.

    Args:
        config: A runner's whole configuration, as objects.

    Returns:
        16 hex digits of the source by module; for an installed package, `version of <package>` -> version.
    """
    used = {module for found in _components(config) for module in _modules(found)}
    starts = {module for module in used if _top(module) != _OURS}
    if not starts:
        return {}
    code: dict[str, str] = {}
    installed = _installed()
    for start in sorted(starts):
        packages = installed.get(_top(start), [])
        code |= {f"version of {package}": version(package) for package in packages}
        for module, source in _own_sources(start, beside=not packages):
            code[module] = hashlib.sha256(source).hexdigest()[:16]
    return dict(sorted(code.items()))


@cache
def _installed() -> Mapping[str, list[str]]:
    """Return the installed packages of each top-level module. The lookup takes a third of a second."""
    return packages_distributions()


def _components(value: object) -> Iterator[Component]:
    """Yield the components whose settings are anywhere in a configuration."""
    if is_dataclass(value) and not isinstance(value, type):
        yield from chosen_by(value)
        for field in fields(value):
            yield from _components(getattr(value, field.name, None))
        codec = getattr(value, "codec", None)
        if isinstance(codec, str) and codec in names(_CODECS):
            yield component(_CODECS, codec)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _components(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _components(each)


def _modules(found: Component) -> list[str]:
    return [made.__module__ for made in (found.build, found.schema) if made is not None]


def _own_sources(start: str, *, beside: bool) -> Iterator[tuple[str, bytes]]:
    """Yield (module, source) for a module and the user's own modules that it imports, each once.

    Args:
        start: A module that was imported.
        beside: Whether modules next to its top-level package or module are the user's own, too.
    """
    home = _home(_spec(_top(start))) if beside else None
    waiting, seen = [start], {start}
    while waiting:
        module = waiting.pop()
        path = _file(module)
        if path is None:
            log.warning("%s has no source file: runs cannot detect that it was edited", module)
            continue
        source = path.read_bytes()
        yield module, source
        for name in _imported(source, module) if path.suffix == ".py" else ():
            top = _top(name)
            own = top == _top(start) or (home is not None and home == _home(_spec(top)))
            if own and top != _OURS and name not in seen and _file(name) is not None:
                seen.add(name)
                waiting.append(name)


def _imported(source: bytes, module: str) -> Iterator[str]:
    """Yield the names that a module's source imports, and their parent packages; some are not modules."""
    loaded = sys.modules.get(module)
    package = getattr(loaded, "__package__", None) or _package(module)
    try:
        tree = ast.parse(source)
    except SyntaxError:  # edited since it was imported: the next import reports it
        return
    for node in ast.walk(tree):
        imported: list[str] = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            imported = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in imported:
            words = name.split(".")
            yield from (".".join(words[:count]) for count in range(1, len(words) + 1))


def _spec(module: str) -> ModuleSpec | None:
    """Find a module; None if it is not one. Imports its parent packages."""
    try:
        return importlib.util.find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None


def _file(module: str) -> Path | None:
    """Return a module's file; None if it is not a module or has no file."""
    loaded, spec = sys.modules.get(module), None
    file = getattr(loaded, "__file__", None)
    if file is None and (spec := _spec(module)) is not None and spec.has_location:
        file = spec.origin
    return Path(file) if file is not None and Path(file).is_file() else None


def _home(spec: ModuleSpec | None) -> Path | None:
    """Return the folder that contains a top-level module or package."""
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    path = Path(spec.origin).resolve()
    return path.parent.parent if spec.submodule_search_locations is not None else path.parent


def _package(module: str) -> str:
    spec = _spec(module)
    return module.rpartition(".")[0] if spec is None or spec.parent is None else spec.parent


def _top(module: str) -> str:
    return module.partition(".")[0]
