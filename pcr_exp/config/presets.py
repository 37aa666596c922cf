"""What the YAML files under `configs/` say, so that a name is believed only while its values are those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from pcr_exp.config.components import schemas
from pcr_exp.config.network import NetworkConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.storage import STORAGE_SCHEMAS, StorageConfig

CONFIGS = Path(__file__).parents[2] / "configs"
_PLAIN: dict[str, type] = {"storage": StorageConfig, "scan": ScanConfig, "network": NetworkConfig}
"""By group, the dataclass of the options whose YAML files name none."""


@cache
def preset(group: str, name: str) -> dict[str, Any] | None:
    """The settings of `<group>=<name>` as committed, with all defaults; None if there is no such option.

    An option that is found elsewhere, such as in a user's own folder of configurations, is not known here.
    """
    path = CONFIGS / group / f"{name}.yaml"
    if not name or Path(name).name != name or not path.is_file():
        return None
    stated = cast(DictConfig, OmegaConf.load(path))
    named = ""
    nested: dict[str, Any] = {}
    for entry in stated.pop("defaults", None) or []:
        if isinstance(entry, str):
            named = entry.removesuffix("_schema") if entry.endswith("_schema") else named
        else:
            ((place, option),) = entry.items()  # such as /scan@floor: group_1
            other, _, key = place.lstrip("/").partition("@")
            nested[key] = preset(other, option)
    plain: Any = OmegaConf.merge(OmegaConf.structured(_schema(group, named)), stated)
    for key, value in nested.items():
        plain[key] = OmegaConf.structured(_PLAIN[group](**value))
    built: Any = OmegaConf.to_object(plain)
    return asdict(built)


def values_of(group: str, config: object) -> dict[str, Any]:
    """A group's settings as a plain dict: an object's, or those of a `config.yaml`.

    What a `config.yaml` from before a key lacks has that key's default, as far as all options share it.
    """
    if is_dataclass(config) and not isinstance(config, type):
        return asdict(config)
    assert isinstance(config, Mapping)
    shared = OmegaConf.to_container(OmegaConf.structured(_PLAIN[group]))
    known = {key: value for key, value in cast(dict[str, Any], shared).items() if value != "???"}
    return {**known, **config}


def changed(group: str, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of a group that are not as the preset of their name has them; None if there is none."""
    stated = preset(group, str(values["name"]))
    if stated is None:
        return None
    return {key: value for key, value in values.items() if key not in stated or stated[key] != value}


def _schema(group: str, named: str) -> type:
    return {"": _PLAIN[group], **schemas(group), **(STORAGE_SCHEMAS if group == "storage" else {})}[named]
