"""From what Hydra composed to objects.

YAML under `configs/` is composed by Hydra against the dataclasses of this package and becomes objects once,
at entry (`load`). Their `slots=True` is what turns an unknown key that was forced in with `+` into an error,
and their `__post_init__` is where a value that cannot work is refused, by its key.
"""

from __future__ import annotations

from typing import TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from pcr_exp.config.activation_study import ActivationStudyConfig
from pcr_exp.config.dataset import DATASET_SCHEMAS, folder_name
from pcr_exp.config.runners import DemoConfig, FiguresConfig, PrepareConfig, QualityConfig, TrainConfig
from pcr_exp.config.scan import SCAN_SCHEMAS
from pcr_exp.config.storage import STORAGE_SCHEMAS
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.config.training import scaled_learning_rate
from pcr_exp.errors import ConfigError

T = TypeVar("T")


RUNNER_SCHEMAS: dict[str, type] = {
    "prepare": PrepareConfig,
    "train": TrainConfig,
    "quality": QualityConfig,
    "throughput": ThroughputConfig,
    "figures": FiguresConfig,
    "demo": DemoConfig,
    "activation_study": ActivationStudyConfig,
}


def register() -> None:
    """Give Hydra the schemas that the YAML files are checked against, and the functions that they call."""
    OmegaConf.register_new_resolver("scaled_learning_rate", scaled_learning_rate, replace=True)
    OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)
    store = ConfigStore.instance()
    for name, schema in DATASET_SCHEMAS.items():
        store.store(group="dataset", name=f"{name}_schema", node=schema, provider="pcr_exp")
    for name, scan_schema in SCAN_SCHEMAS.items():
        store.store(group="scan", name=f"{name}_schema", node=scan_schema, provider="pcr_exp")
    for name, storage_schema in STORAGE_SCHEMAS.items():
        store.store(group="storage", name=f"{name}_schema", node=storage_schema, provider="pcr_exp")
    for name, schema in RUNNER_SCHEMAS.items():
        store.store(name=f"{name}_schema", node=schema, provider="pcr_exp")


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
        raise ConfigError(f"unknown configuration key: {error}") from error
    except (OmegaConfBaseException, TypeError) as error:
        raise ConfigError(f"the configuration cannot be used: {error}") from error
    if not isinstance(loaded, schema):
        raise ConfigError(f"the configuration is a {type(loaded).__name__}; wanted a {schema.__name__}.")
    return loaded
