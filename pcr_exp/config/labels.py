"""What to call a choice in titles, tables, footers and names of runs: by its numbers, not by its file's name.

Every function takes a group of settings, as an object or as the plain dict of a run's `config.yaml`. A name
stands there only with its numbers, or while its values are those of the committed file: `storage=hdd` at
8 MiB/s is no hdd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pcr_exp.config.network import NetworkConfig
from pcr_exp.config.presets import changed, values_of
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.storage import StorageConfig

_STATIC_KEYS = {"name", "encoding", "group"}
_NOT_OF_STORAGE = {"cold_cache", "reads_in_flight"}
"""What the loader does with it, which has its own words or changes seconds alone."""
_LONGEST_SLUG = 40
_NO_LIMIT = "unlimited"


def storage_label(config: StorageConfig | Mapping[str, Any]) -> str:
    """Such as `unlimited`, `hdd (150 MiB/s, 8 ms seek)`, `8 MiB/s, 40 ms`, `slow_disk (2 MiB/s)`.

    A preset whose values were changed loses its name; a name that is no preset's keeps it.
    """
    values = values_of("storage", config)
    label = _named(values, "storage", _storage_numbers(values))
    return f"{label}, cold cache" if values["cold_cache"] else label


def storage_slug(config: StorageConfig | Mapping[str, Any]) -> str:
    """The same as part of a file's name: `unlimited`, `hdd`, `8mibps_40ms`, `slow_disk_2mibps`."""
    values = values_of("storage", config)
    slug = _slug(values, "storage", _storage_numbers(values))
    return f"{slug}_cold" if values["cold_cache"] else slug


def network_label(config: NetworkConfig | Mapping[str, Any]) -> str:
    """Such as `unlimited`, `100mbit (100 Mbit/s)`, `80 Mbit/s, 1 ms`."""
    values = values_of("network", config)
    return _named(values, "network", _network_numbers(values))


def network_slug(config: NetworkConfig | Mapping[str, Any]) -> str:
    """The same as part of a file's name: `unlimited`, `100mbit`, `80mbitps_1ms`."""
    values = values_of("network", config)
    return _slug(values, "network", _network_numbers(values))


def scan_label(config: ScanConfig | Mapping[str, Any]) -> str:
    """A static level by what it reads (`baseline`, `group_5`), a policy by its name and what was changed.

    `scan=mssim scan.threshold=0.9` is `mssim (threshold=0.9)`.
    """
    values = values_of("scan", config)
    if values.keys() <= _STATIC_KEYS:
        return "baseline" if values["encoding"] == "baseline" else f"group_{values['group']}"
    words = [f"{key}={_short(value)}" for key, value in _changes(values).items()]
    return f"{values['name']} ({', '.join(words)})" if words else str(values["name"])


def scan_slug(config: ScanConfig | Mapping[str, Any]) -> str:
    """The same as part of a file's name: `group_5`, `mssim_threshold_0.9`, `mssim_changed`."""
    label = scan_label(config)
    slug = re.sub(r"[^A-Za-z0-9_.]+", "_", label).strip("_")
    return slug if len(slug) <= _LONGEST_SLUG else f"{label.partition(' ')[0]}_changed"


def _changes(values: Mapping[str, Any]) -> dict[str, Any]:
    found = changed("scan", values) or {}
    if "groups" in values:
        found.pop("group", None)  # a schedule's first
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
    """None: the name is the user's own."""
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
