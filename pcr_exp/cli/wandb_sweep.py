"""A grid as the file that `wandb sweep` takes, so that W&B's agents run the jobs that `-m` would.

python -m experiments.sweep wandb experiment=time_to_accuracy > sweep.yaml
wandb sweep sweep.yaml
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import named_packages, prepare_hydra
from pcr_exp.errors import ConfigError
from pcr_exp.places import CONFIGS, as_typed


def wandb_sweep(overrides: Sequence[str]) -> dict[str, Any]:
    """The grid of an experiment, or of values with commas between them, as W&B's sweep configuration.

    Args:
        overrides: As on the command line of `train`.

    Raises:
        ConfigError: there is one job only.
        hydra.errors.HydraException: an override cannot be read, or names no option that there is.
    """
    prepare_hydra(named_packages(overrides), {"train": TrainConfig})
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    fixed = [str(override.input_line) for override in parsed if not override.is_sweep_override()]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = hydra.compose("train", overrides=fixed, return_hydra_config=True)
    params = OmegaConf.to_container(composed.hydra.sweeper.params or OmegaConf.create({}))
    grid = {str(key): f"{key!s}={values}" for key, values in params.items()}  # type: ignore[union-attr]
    for override in parsed:  # what is typed goes before what the experiment says
        key = override.get_key_element()
        if override.is_sweep_override():
            grid[key] = str(override.input_line)
        else:
            grid.pop(key, None)
    swept = OverridesParser.create().parse_overrides(list(grid.values()))
    parameters: dict[str, Any] = {}
    for override in swept:
        if override.is_sweep_override():
            parameters[override.get_key_element()] = {"values": list(override.sweep_string_iterator())}
        else:
            fixed.append(str(override.input_line))
    if not parameters:
        raise ConfigError(
            f"{' '.join(overrides)}: one job, and no grid. Give an experiment that has one, or values with "
            "commas between them, such as seed=0,1,2."
        )
    program = as_typed("python -m experiments.train").split()
    return {
        "method": "grid",
        "name": next((o.removeprefix("experiment=") for o in fixed if o.startswith("experiment=")), "train"),
        "project": str(composed.tracking.get("project", "pcr-exp")),
        "parameters": parameters,
        "command": [
            "${env}",
            *program,
            *fixed,
            "hydra.mode=RUN",
            *([] if any(o.startswith("tracking=") for o in fixed) else ["tracking=wandb_online"]),
            "${args_no_hyphens}",
        ],
    }
