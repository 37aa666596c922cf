"""From YAML files and a command line to objects.

Hydra composes the YAML under `configs/` against the dataclasses of this package, and `load` converts it to
objects once, at entry. With `slots=True`, an unknown key that was forced in with `+` becomes an error.
`__post_init__` refuses invalid values by their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TypeVar

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from pcr_exp.config import components
from pcr_exp.config.dataset import folder_name
from pcr_exp.config.loader import STORAGE_SCHEMAS
from pcr_exp.config.training import scaled_learning_rate
from pcr_exp.errors import ConfigError
from pcr_exp.places import CONFIGS, as_typed

T = TypeVar("T")


class UsersConfigs(SearchPathPlugin):
    """Hydra plugin that finds the YAML files of users' component packages."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the packages' folders. Our file takes precedence over one of the same name."""
        for folder in components.config_folders():
            search_path.append(provider="pcr_exp.components", path=f"file://{folder}")


def prepare_hydra(packages: Iterable[str] = (), commands: Mapping[str, type] | None = None) -> None:
    """Register the schemas that YAML files are checked against, and the resolvers that they call, with Hydra.

    Args:
        packages: Users' component packages, besides those installed with an entry point.
        commands: Schema of each command to compose, by the name of its YAML file.

    Raises:
        ConfigError: a package cannot be imported.
    """
    components.find_components(packages)
    OmegaConf.register_new_resolver("scaled_learning_rate", scaled_learning_rate, replace=True)
    OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)
    OmegaConf.register_new_resolver("as_typed", as_typed, replace=True)
    Plugins.instance().register(UsersConfigs)
    options = {group: components.schemas(group) for group in components.groups()}
    for group, schemas in {**options, "storage": STORAGE_SCHEMAS}.items():
        for name, schema in schemas.items():
            _store(group.partition(".")[0], name, schema)
    for name, schema in (commands or {}).items():
        _store(None, name, schema)


_stored: dict[tuple[str | None, str], type] = {}
"""Schemas already stored in this process. Storing them again would cost as much as composing."""


def _store(group: str | None, name: str, schema: type) -> None:
    if _stored.get((group, name)) is not schema:
        ConfigStore.instance().store(group=group, name=f"{name}_schema", node=schema, provider="pcr_exp")
        _stored[group, name] = schema


def named_packages(overrides: Iterable[str]) -> list[str]:
    """Return the packages in `components=[my_package]`. They must be imported before composing.

    Raises:
        ConfigError: the value is not a list.
    """
    packages: list[str] = []
    for override in overrides:
        if override.startswith("components="):
            value = OverridesParser.create().parse_override(override).value()
            if not isinstance(value, list):
                raise ConfigError(f"{override}: wanted a list of packages, such as components=[my_package].")
            packages += [str(package) for package in value]
    return packages


def compose(name: str, schema: type[T], *overrides: str) -> T:
    """Return the settings of `python -m experiments.<name> <overrides>`, in a command by its search path.

    Args:
        name: Name of the command and of its YAML file.
        schema: Dataclass of its settings.
        overrides: Overrides as on its command line.

    Raises:
        ConfigError: a key is missing, unknown, of the wrong type, or has an invalid value.
        hydra.errors.HydraException: an override cannot be parsed, or names an option that does not exist.
    """
    prepare_hydra(named_packages(overrides), {name: schema})
    return load(composed(name, overrides), schema)


def composed(name: str, overrides: Iterable[str], *, with_hydra: bool = False) -> DictConfig:
    """Return a command's composed configuration, on request with the `hydra` node; see `prepare_hydra`."""
    inside = GlobalHydra.instance().is_initialized()
    opened = nullcontext() if inside else hydra.initialize_config_dir(str(CONFIGS), version_base="1.3")
    with opened:
        return hydra.compose(name, overrides=list(overrides), return_hydra_config=with_hydra)


def load(config: DictConfig, schema: type[T]) -> T:
    """Convert a composed configuration to objects. This runs every check of this package.

    Raises:
        ConfigError: a key is missing, unknown, of the wrong type, or has an invalid value.
    """
    try:
        loaded = OmegaConf.to_object(config)
    except ConfigError:
        raise
    except (ConfigKeyError, AttributeError) as error:  # slots refuse `+dataset.typo=1` with an AttributeError
        raise ConfigError(f"unknown configuration key: {_in_a_line(error)}") from error
    except (OmegaConfBaseException, TypeError) as error:
        raise ConfigError(f"the configuration cannot be used: {_in_a_line(error)}") from error
    if not isinstance(loaded, schema):
        raise ConfigError(f"the configuration is a {type(loaded).__name__}; wanted a {schema.__name__}.")
    return loaded


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())
