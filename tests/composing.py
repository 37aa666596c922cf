"""Compose configurations as `python -m experiments.<runner>` does, without merging the same files twice.

Hydra takes a fifth of a second to choose and merge files, and a few milliseconds to set values in the result.
Tests set hundreds of values, but choose only a few combinations of files.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from experiments.comet.settings import ActivationStudyConfig
from experiments.report import ReportConfig
from pcr_exp.cli import schemas
from pcr_exp.config.compose import load, prepare_hydra
from pcr_exp.places import CONFIGS

SCHEMAS: dict[str, type] = schemas() | {
    "activation_study": ActivationStudyConfig,
    "report": ReportConfig,
}
"""Schema of every command that Hydra composes, by the name of its YAML file."""


def compose(runner: str, *overrides: str) -> Any:
    """Return what `pcr_exp.config.compose.compose` returns, and raise the same errors."""
    prepare_hydra(commands=SCHEMAS)
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    files = [override for override in parsed if (CONFIGS / override.key_or_group).is_dir()]
    values = [override for override in parsed if override not in files]
    config = copy.deepcopy(_merged(runner, *(str(override.input_line) for override in files)))
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    return load(config, SCHEMAS[runner])


@functools.cache
def _merged(runner: str, *files: str) -> DictConfig:
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(runner, overrides=list(files))
