"""Labels of settings for titles, tables, footers and run names, by their numbers instead of a file's name.

Every function takes a group of settings, as an object or as the plain dict of a run's `config.yaml`. A name
is shown only with its numbers, or while its values are those of the committed file. A preset with overridden
values loses its name: with `storage=hdd` at 8 MiB/s, only the numbers are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from pcr_exp.config.components import schemas
from pcr_exp.config.loader import STORAGE_SCHEMAS, StorageConfig
from pcr_exp.config.records import RecordsConfig, num_groups_of, script_of_records
from pcr_exp.config.related_methods import NetworkConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.scan_scripts import DEFAULT, NUM_GROUPS, groups_of_script
from pcr_exp.places import CONFIGS

DEFAULT_NAME = "default"
"""Name of libjpeg's script in `records.scans`."""
NO_GROUP = 0
"""Scan group of the baseline in rows and tables, as its records store files whole."""
_OF = " of "
_PLAIN: dict[str, type] = {"storage": StorageConfig, "scan": ScanConfig, "network": NetworkConfig}
"""Dataclass of the options whose YAML files name no schema, by group."""


@cache
def preset(group: str, name: str) -> dict[str, Any] | None:
    """Return the committed settings of `<group>=<name>`, with all defaults; None if there is no such option.

    Options from elsewhere, such as a user's own folder of configurations, are not known here.
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
    """Return a group's settings as a plain dict, from an object or a `config.yaml`.

    A key that is missing from an older `config.yaml` gets its default, if all options share the key.
    """
    if is_dataclass(config) and not isinstance(config, type):
        return asdict(config)
    assert isinstance(config, Mapping)
    return {**_shared_defaults(group), **config}


@cache  # tables call this for every run
def _shared_defaults(group: str) -> dict[str, Any]:
    shared = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(_PLAIN[group])))
    return {key: value for key, value in shared.items() if value != "???"}


def changed(group: str, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings that differ from the preset of the same name; None if there is no such preset."""
    stated = preset(group, str(values["name"]))
    if stated is None:
        return None
    return {key: value for key, value in values.items() if key not in stated or stated[key] != value}


def _schema(group: str, named: str) -> type:
    return {"": _PLAIN[group], **schemas(group), **(STORAGE_SCHEMAS if group == "storage" else {})}[named]


_STATIC_KEYS = {"name", "encoding", "group"}
_NOT_OF_STORAGE = {"cold_cache", "reads_in_flight", "cache", "cache_mib"}
"""Loader settings, which have labels of their own or affect only seconds."""
_LONGEST_SLUG = 40
_NO_LIMIT = "unlimited"


def storage_label(config: StorageConfig | Mapping[str, Any]) -> str:
    """Label, such as `unlimited`, `hdd (150 MiB/s, 8 ms seek)`, `8 MiB/s, 40 ms`, `slow_disk (2 MiB/s)`.

    A preset with overridden values loses its name; a name that is not a preset's is kept.
    """
    values = values_of("storage", config)
    label = _named(values, "storage", _storage_numbers(values))
    return f"{label}, cold cache" if values["cold_cache"] else label


def storage_slug(config: StorageConfig | Mapping[str, Any]) -> str:
    """The same for file names: `unlimited`, `hdd`, `8mibps_40ms`, `slow_disk_2mibps`."""
    values = values_of("storage", config)
    slug = _slug(values, "storage", _storage_numbers(values))
    return f"{slug}_cold" if values["cold_cache"] else slug


def network_label(config: NetworkConfig | Mapping[str, Any]) -> str:
    """Label, such as `unlimited`, `100mbit (100 Mbit/s)`, `80 Mbit/s, 1 ms`."""
    values = values_of("network", config)
    return _named(values, "network", _network_numbers(values))


def network_slug(config: NetworkConfig | Mapping[str, Any]) -> str:
    """The same for file names: `unlimited`, `100mbit`, `80mbitps_1ms`."""
    values = values_of("network", config)
    return _slug(values, "network", _network_numbers(values))


def scan_label(
    config: ScanConfig | Mapping[str, Any], records: RecordsConfig | Mapping[str, Any] | None = None
) -> str:
    """Label a static level by what it reads (`baseline`, `group_5`), and a policy by its name and changes.

    `scan=mssim scan.threshold=0.9` is `mssim (threshold=0.9)`. If `records`, the run's own, have another
    script than libjpeg's, the label names it: `group_3 of spectral`.
    """
    values = values_of("scan", config)
    if values["encoding"] == "baseline" and values.keys() <= _STATIC_KEYS:
        return "baseline"
    said = asdict(records) if isinstance(records, RecordsConfig) else (records or {})
    label = _level(values, num_groups_of(said))
    return label if script_of_records(said) == DEFAULT else in_script(label, said["scans"]["name"])


def group_number(encoding: str, group: int) -> int:
    """Return a level's scan group for rows and tables; NO_GROUP for baseline, which has no groups."""
    return NO_GROUP if encoding == "baseline" else group


def in_script(label: str, script: str) -> str:
    """Label a level of a script's records: `group_3`, `group_3 of spectral`."""
    return label if script == DEFAULT_NAME else f"{label}{_OF}{script}"


def script_in(label: str) -> str:
    """Return the script of a level's label: `group_3 of spectral` -> `spectral`, `group_3` -> `default`."""
    return label.rpartition(_OF)[2] if _OF in label else DEFAULT_NAME


def _level(values: Mapping[str, Any], num_groups: int) -> str:
    if values.keys() <= _STATIC_KEYS:
        return f"group_{values['group']}"
    words = [f"{key}={_short(value)}" for key, value in _changes(values, num_groups).items()]
    return f"{values['name']} ({', '.join(words)})" if words else str(values["name"])


def scan_slug(
    config: ScanConfig | Mapping[str, Any], records: RecordsConfig | Mapping[str, Any] | None = None
) -> str:
    """The same for file names: `group_5`, `mssim_threshold_0.9`, `group_3_of_spectral`."""
    label = scan_label(config, records)
    slug = re.sub(r"[^A-Za-z0-9_.]+", "_", label).strip("_")
    return slug if len(slug) <= _LONGEST_SLUG else f"{label.partition(' ')[0]}_changed"


def _changes(values: Mapping[str, Any], num_groups: int = NUM_GROUPS) -> dict[str, Any]:
    stated = preset("scan", str(values["name"])) or {}
    found = changed("scan", values) or {}
    for key in ("candidates", "groups"):
        if key in found and found[key] == groups_of_script(key, stated[key], num_groups):
            del found[key]  # the preset's groups, adapted to records with fewer groups
    if found.get("group") == num_groups and stated["group"] == NUM_GROUPS:
        del found["group"]
    if "groups" in values:
        found.pop("group", None)  # the first group of a schedule
    return found


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return scan_label(value)
    if isinstance(value, list):
        return "[" + ",".join(_short(item) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _named(values: Mapping[str, Any], group: str, numbers: list[str]) -> str:
    name, text = str(values["name"]), ", ".join(numbers)
    if _is_overridden(values, group):
        return text or _NO_LIMIT
    if not text:
        return name if name == _NO_LIMIT else f"{name} ({_NO_LIMIT})"
    return f"{name} ({text})"


def _slug(values: Mapping[str, Any], group: str, numbers: list[str]) -> str:
    name = str(values["name"])
    text = "_".join(number.lower() for number in numbers)
    for words, letters in {" requests/s": "rps", "/s": "ps", " ": ""}.items():
        text = text.replace(words, letters)
    overridden = _is_overridden(values, group)
    if overridden is None:
        return f"{name}_{text or _NO_LIMIT}"
    return (text or _NO_LIMIT) if overridden else name


def _is_overridden(values: Mapping[str, Any], group: str) -> bool | None:
    """Return whether values differ from the preset; None if the name is not a preset's."""
    found = changed(group, values)
    return None if found is None else bool(found.keys() - _NOT_OF_STORAGE)


def _storage_numbers(values: Mapping[str, Any]) -> list[str]:
    shares = zip(values.get("shares", []), values.get("changes_s", []), strict=False)
    return _numbers(
        values,
        bandwidth_mib_per_s="{:g} MiB/s",
        latency_ms="{:g} ms",
        seek_ms="{:g} ms seek",
        requests_per_s="{:g} requests/s",
    ) + [f"x {share:g} from {start_s:g} s" for share, start_s in shares]


def _network_numbers(values: Mapping[str, Any]) -> list[str]:
    return _numbers(values, bandwidth_mbit_per_s="{:g} Mbit/s", latency_ms="{:g} ms")


def _numbers(values: Mapping[str, Any], **forms: str) -> list[str]:
    return [form.format(values[key]) for key, form in forms.items() if values.get(key)]
