"""`runner=smoke`: what is typed, at the size that its configuration has below `smoke`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.runners import TrainConfig
from pcr_exp.places import CONFIGS

SMOKE = "runner=smoke"
_OF_ANY_DATASET = {field.name for field in fields(DatasetConfig)}


def smoke_overrides(runner: str, typed: Sequence[str]) -> list[str]:
    """The overrides that make a command small; none unless `runner=smoke` was typed.

    What was typed itself is left as it is. Of a dataset that was chosen so, settings that only the embedded
    one has are left out.

    Args:
        runner: Such as `train`.
        typed: The command line's overrides.
    """
    if SMOKE not in typed:
        return []
    chosen = [text for text in typed if text.startswith(("experiment=", "components=", "smoke."))]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return beside(hydra.compose(runner, overrides=chosen)["smoke"], typed)


def acting(config: DictConfig, loaded: Any, typed: Sequence[str]) -> DictConfig:
    """The configuration of a small run in which a scan policy decides: what acts on epochs is given some.

    What was typed, and what the experiment's `smoke` says, is left as it is.

    Args:
        config: As composed.
        loaded: The objects that it became.
        typed: Overrides of the command line.
    """
    if not isinstance(loaded, TrainConfig):
        return config
    settings, num_epochs = loaded.scan.at_smoke_size()
    given = {text.partition("=")[0].lstrip("+~") for text in typed}
    small = copy.deepcopy(config)
    for name, value in settings.items():
        if not {key := f"scan.{name}"} & (given | loaded.smoke.keys()):
            OmegaConf.update(small, key, value)
    asked = next((text for text in typed if text.startswith("training.epochs=")), None)
    if asked in (None, f"training.epochs={loaded.smoke.get('training.epochs')}"):  # by `smoke`, at most
        small.training.epochs = max(loaded.training.epochs, num_epochs)
    return small


def beside(smoke: Mapping[str, Any], typed: Sequence[str]) -> list[str]:
    """The overrides of a configuration's `smoke` that what was typed leaves to it."""
    given = {text.partition("=")[0].lstrip("+~") for text in typed}
    return [
        f"{key}={value}"
        for key, value in smoke.items()
        if value is not None and key not in given and not _of_another_dataset(key, given)
    ]


def _of_another_dataset(key: str, given: set[str]) -> bool:
    group, _, name = key.partition(".")
    return group == "dataset" and "dataset" in given and name != "" and name not in _OF_ANY_DATASET
