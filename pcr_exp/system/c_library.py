"""Shared libraries called through ctypes, which releases the GIL during calls."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

Library = TypeVar("Library")


def load(path: str, functions: dict[str, tuple[Any, tuple[Any, ...]]]) -> ctypes.CDLL:
    """Load the shared library at `path`, and set the types of functions: (result, arguments) by name.

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
    """Load a library of this package, whose first function must return `version`, that of the given types.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks one of the functions, or has another version.
    """
    library = load(path, functions)
    found = getattr(library, next(iter(functions)))()
    if found != version:
        raise AttributeError(
            f"{path} is of version {found}, wanted {version}: install pcr-exp again (pip install -e .)"
        )
    return library


def built_library(module: str) -> str | None:
    """Return the path of the library built as this module of the package; None if there was no compiler."""
    found = importlib.util.find_spec(module)
    return found.origin if found else None


def opened(path: str | None, open_library: Callable[[str], Library]) -> Library | None:
    """Open the library at a path from `built_library`; return None if there is none, or it does not fit."""
    try:
        return open_library(path) if path else None
    except (OSError, AttributeError):
        return None
