"""Import on first use: torch takes seconds to import, and composing a configuration does not need it.

For modules that define a component and its settings:

    from pcr_exp.system.lazy import torch
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any


class LazyModule:
    """Stands for a module, which is imported when an attribute is first accessed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


@dataclass(frozen=True, slots=True)
class LazyFunction:
    """Stands for a function, whose module is imported on the first call. Can be pickled."""

    module: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        return getattr(importlib.import_module(self.module), self.name)(*arguments)


if TYPE_CHECKING:
    import torch as torch
    import torchvision as torchvision  # type: ignore[import-untyped]
else:
    torch = LazyModule("torch")
    torchvision = LazyModule("torchvision")
