"""Registry of datasets, models, tasks, scan policies, echo variants and codecs, by name.

    @dataclass(kw_only=True, slots=True)
    class EagerConfig(CandidatesConfig):
        first_epoch: int = 5

    @register("scan", "eager", EagerConfig)
    def open_eager(config: EagerConfig, run: PolicyInputs) -> ScanPolicy: ...

Together with a `configs/scan/eager.yaml` whose defaults begin with `eager_schema`, this makes `scan=eager`
work. The registered function builds the component from its settings; its other arguments depend on the group.
An image codec has no settings: it is named by `records.codec` and by the records that it wrote.

Components are found in this package, in packages installed with an entry point of the group
`pcr_exp.components`, and in the packages that `components=[my_package]` names, which may lie in the working
folder. If a package has a folder `configs`, its YAML files are available as well.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pcr_exp.errors import ConfigError
from pcr_exp.places import CONFIGS

ENTRY_POINTS = "pcr_exp.components"
OURS = (
    *(f"pcr_exp.datasets.{name}" for name in ("cars", "celebahq", "folder", "ham10000", "imagenet")),
    *(f"pcr_exp.datasets.{name}" for name in ("pcr_release", "photos", "table")),
    *(f"pcr_exp.policies.{name}" for name in ("balanced", "plateau", "policy")),
    *(f"pcr_exp.policies.{name}" for name in ("schedule", "smallest")),
    *(f"pcr_exp.gradients.{name}" for name in ("codec", "compared", "threelc")),
    *(f"pcr_exp.activations.{name}" for name in ("quantise", "sz")),
    "pcr_exp.config.mixture",
    "pcr_exp.loading.echo.variants",
    *(f"pcr_exp.training.{name}" for name in ("models", "task", "values")),
)
"""Modules that register our components, except the image codec, which readers of records import. Others need
torch and the like, and are not listed, so that composing a configuration does not wait seconds for them."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Component:
    """One option of a configuration group."""

    schema: type | None
    """Dataclass of its settings; None if it has none."""
    build: Callable[..., Any]
    """Called with the settings, if any, and the arguments of the group's `open_...` function."""


_components: dict[str, dict[str, Component]] = {}
_packages: list[str] = []
"""Users' packages, in the order of discovery."""
_found_all = False


def register(group: str, name: str, schema: type | None = None) -> Callable[[F], F]:
    """Register the decorated function or class as option `name` of a group, with its settings class if any.

    Raises:
        ConfigError: another component has this name.
    """

    def keep(build: F) -> F:
        before = _components.setdefault(group, {}).get(name)
        if before is not None and _place(before.build) != _place(build):
            raise ConfigError(
                f"{group}={name}: registered by {_place(before.build)} and by {_place(build)}; "
                "give one of them another name."
            )
        _components[group][name] = Component(schema, build)
        return build

    return keep


def find_components(packages: Iterable[str] = ()) -> None:
    """Import our components, those of installed packages, and those of `packages`, each only once.

    Raises:
        ConfigError: a package cannot be imported.
    """
    global _found_all
    if not _found_all:
        _found_all = True  # set first: importing a component's module may look up others
        for module in OURS:
            importlib.import_module(module)
        for entry in entry_points(group=ENTRY_POINTS):
            _import_users(entry.module, f"the entry point {entry.name!r} of the group {ENTRY_POINTS}")
    for package in packages:
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # `pcr-exp`, unlike `python -m`, does not search the working folder
        _import_users(package, f"components=[{package}]")


def schemas(group: str) -> dict[str, type]:
    """Return the settings dataclass of every option of a group that has one."""
    options = _options(group).items()
    return {name: component.schema for name, component in options if component.schema is not None}


def names(group: str) -> list[str]:
    """Return the registered names of a group, in alphabetical order."""
    return sorted(_options(group))


def groups() -> list[str]:
    """Return every group with a registered component."""
    find_components()
    return list(_components)


def component(group: str, name: str) -> Component:
    """Return the option `name` of a group. Raises KeyError if there is none.

    Other components are only imported if it has not been registered yet.
    """
    return _components.get(group, {}).get(name) or _options(group)[name]


def component_of(group: str, config: Any) -> tuple[str, Component]:
    """Return the name and component of the option of a group that these settings belong to.

    If several options share a dataclass, the settings' `name` decides.

    Raises:
        ConfigError: they belong to none.
    """
    for name, component in _matching(group, config).items():
        return name, component
    raise ConfigError(
        f"{group}: {config.name!r} is not an option with settings of {type(config).__name__}; choose one "
        f"with {group}={', '.join(names(group))}."
    )


def chosen_by(settings: object) -> list[Component]:
    """Return the options that these settings belong to, in any group; their `name` decides among several."""
    return [each for group in groups() for each in _matching(group, settings).values()]


def build(group: str, config: Any, *given: Any) -> Any:
    """Build the component that these settings belong to; see its group's `open_...` function.

    Raises:
        ConfigError: no component has such settings.
    """
    return component_of(group, config)[1].build(config, *given)


def config_folders() -> list[Path]:
    """Return the `configs` folders of users' packages, for Hydra's search path."""
    roots = [Path(root) for package in _packages for root in getattr(sys.modules[package], "__path__", [])]
    return [root / "configs" for root in roots if (root / "configs").is_dir()]


def option_names(group: str) -> list[str]:
    """Return the names of a group's YAML files, ours and users', sorted; empty if there is no such group."""
    folders = [root / group for root in (CONFIGS, *config_folders())]
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")}) if group else []


def _matching(group: str, settings: Any) -> dict[str, Component]:
    options = {name: found for name, found in _options(group).items() if found.schema is type(settings)}
    if len(options) > 1:
        options = {name: found for name, found in options.items() if name == settings.name}
    return options


def _options(group: str) -> dict[str, Component]:
    find_components()
    return _components.get(group, {})


def _import_users(package: str, named_by: str) -> None:
    if package in _packages:
        return
    try:
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{package}."):
            if not found.name.endswith(".__main__"):
                importlib.import_module(found.name)
    except ImportError as error:
        raise ConfigError(
            f"{named_by}: {package!r} cannot be imported ({error}); wanted a module or package that "
            "registers components. Install it, or run the command in the folder that contains it."
        ) from error
    _packages.append(package)


def _place(build: Callable[..., Any]) -> str:
    return f"{build.__module__}.{build.__qualname__}"
