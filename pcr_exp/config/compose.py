"""From YAML files and a command line to objects.

YAML under `configs/` is composed by Hydra against the dataclasses of this package and becomes objects once,
at entry (`load`). Their `slots=True` is what turns an unknown key that was forced in with `+` into an error,
and their `__post_init__` is where a value that cannot work is refused, by its key.
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
    """Lets Hydra find the YAML files that users' packages of components bring along."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append their folders: a file of ours goes before one of the same name."""
        for folder in components.config_folders():
            search_path.append(provider="pcr_exp.components", path=f"file://{folder}")


def prepare_hydra(packages: Iterable[str] = (), commands: Mapping[str, type] | None = None) -> None:
    """Give Hydra the schemas that the YAML files are checked against, and the functions that they call.

    Args:
        packages: Users' packages of components, besides those that are installed with an entry point.
        commands: The schema of each command that is composed, by the name of its YAML file.

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
"""Schemas that Hydra was given in this process: to give them anew costs as much as to compose."""


def _store(group: str | None, name: str, schema: type) -> None:
    if _stored.get((group, name)) is not schema:
        ConfigStore.instance().store(group=group, name=f"{name}_schema", node=schema, provider="pcr_exp")
        _stored[group, name] = schema


def named_packages(overrides: Iterable[str]) -> list[str]:
    """The packages in `components=[my_package]`: what they register is needed before anything is composed.

    Raises:
        ConfigError: the value is no list.
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
    """The settings of `python -m experiments.<name> <overrides>`; inside a command, by its search path.

    Args:
        name: Of the command, and of its YAML file.
        schema: The dataclass of its settings.
        overrides: As on its command line.

    Raises:
        ConfigError: a key is missing, unknown, of the wrong type, or has a value that cannot work.
        hydra.errors.HydraException: an override cannot be read, or names no option that there is.
    """
    prepare_hydra(named_packages(overrides), {name: schema})
    return load(composed(name, overrides), schema)


def composed(name: str, overrides: Iterable[str], *, with_hydra: bool = False) -> DictConfig:
    """Hydra's configuration of a command, with its own node if asked for; see `prepare_hydra`."""
    inside = GlobalHydra.instance().is_initialized()
    opened = nullcontext() if inside else hydra.initialize_config_dir(str(CONFIGS), version_base="1.3")
    with opened:
        return hydra.compose(name, overrides=list(overrides), return_hydra_config=with_hydra)


def load(config: DictConfig, schema: type[T]) -> T:
    """Turn what Hydra composed into objects; every check of this package runs here.

    Raises:
        ConfigError: a key is missing, unknown, of the wrong type, or has a value that cannot work.
    """
    try:
        loaded = OmegaConf.to_object(config)
    except ConfigError:
        raise
    except (ConfigKeyError, AttributeError) as error:  # the latter is how slots refuse `+dataset.typo=1`
        raise ConfigError(f"unknown configuration key: {_in_a_line(error)}") from error
    except (OmegaConfBaseException, TypeError) as error:
        raise ConfigError(f"the configuration cannot be used: {_in_a_line(error)}") from error
    if not isinstance(loaded, schema):
        raise ConfigError(f"the configuration is a {type(loaded).__name__}; wanted a {schema.__name__}.")
    return loaded


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())
