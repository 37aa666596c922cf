"""The meaning of each setting: the docstring below its field, read where its dataclass is written."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from dataclasses import is_dataclass


def meaning_of(schema: type, field: str) -> str:
    """What stands below a field of a dataclass, or of the first of its bases that says it, in one line.

    Empty where nobody says it, or the source is not at hand.
    """
    for cls in schema.__mro__:
        if is_dataclass(cls) and (said := _said_in(cls.__module__).get((cls.__qualname__, field))):
            return said
    return ""


@functools.cache
def _said_in(module: str) -> dict[tuple[str, str], str]:
    """(class, field) -> its docstring, of the classes of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # a notebook's cell, or a package without its source
        return {}
    said = {}
    for cls in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        for statement, below in zip(cls.body, cls.body[1:], strict=False):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    said[cls.name, name] = " ".join(text.split())
    return said
