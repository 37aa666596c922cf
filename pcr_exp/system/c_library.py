"""Shared libraries that are called through ctypes, which releases the GIL meanwhile."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

Library = TypeVar("Library")


def load(path: str, functions: dict[str, tuple[Any, tuple[Any, ...]]]) -> ctypes.CDLL:
    """The shared library at `path`, with the types of these functions: (result, arguments) by name.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks one of the functions.
    """
    library = ctypes.CDLL(path)
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def load_own(path: str, functions: dict[str, tuple[Any, tuple[Any, ...]]], version: int) -> ctypes.CDLL:
    """A library of this package: the first of its functions tells the version that its types are of.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks one of the functions, or is of another version.
    """
    library = load(path, functions)
    found = getattr(library, next(iter(functions)))()
    if found != version:
        raise AttributeError(
            f"{path} is of version {found}, wanted {version}: install pcr-exp again (pip install -e .)"
        )
    return library


def built_library(module: str) -> str | None:
    """The library that was built as this module of the package; None where there was no compiler."""
    found = importlib.util.find_spec(module)
    return found.origin if found else None


def opened(path: str | None, open_library: Callable[[str], Library]) -> Library | None:
    """The library at the path that `built_library` gave; None if there is none, or it does not fit."""
    try:
        return open_library(path) if path else None
    except (OSError, AttributeError):
        return None
