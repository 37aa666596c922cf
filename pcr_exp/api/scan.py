"""Scans as users specify them: `"group_2"`, `2`, `"all"`, `"baseline"`, or a policy's name and settings.

    scan={"name": "schedule", "groups": [2, 10], "milestones": [30]}
    scan={"name": "balanced", "floor": "group_2"}

A policy's settings are those of its option in `configs/scan/`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from inspect import formatannotation
from typing import Any, TypeAlias, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pcr_exp.config.components import component, schemas
from pcr_exp.config.scan import FULL, ScanConfig
from pcr_exp.errors import ConfigError
from pcr_exp.policies.policy import PolicyInputs, ScanPolicy, StaticScan, open_policy
from pcr_exp.records.index import RecordIndex

Scan: TypeAlias = str | int | Mapping[str, Any]

BASELINE = "baseline"
ALL = "all"
_ASK_THE_MODEL = ("cosine", "plateau", "tolerance")
"""Policies whose probes need the model being trained, or another network."""


def encoding_of(scan: Scan) -> str:
    """Return the encoding of the records to read for this scan."""
    return "baseline" if scan == BASELINE else "pcr"


def plain(scan: Any) -> Any:
    """Return a scan as JSON would return it, with plain dicts and lists."""
    if isinstance(scan, Mapping):
        return {key: plain(value) for key, value in scan.items()}
    return [plain(value) for value in scan] if isinstance(scan, list | tuple) else scan


def is_static(scan: Scan) -> bool:
    """Whether the scan is one scan group in every epoch."""
    return not isinstance(scan, Mapping) and scan not in list(schemas("scan"))


def policy_of_scan(scan: Scan, run: PolicyInputs) -> ScanPolicy:
    """Return the policy that a user requested.

    Raises:
        ConfigError: there is no such scan or policy, or its settings are invalid.
        RecordError: the records lack a group.
    """
    group = _static_group(scan, run.index)
    policy = StaticScan(group) if group is not None else _open_policy(scan, run)
    for candidate in policy.candidates:
        run.index.check_group(candidate)
    return policy


def _open_policy(scan: Scan, run: PolicyInputs) -> ScanPolicy:
    settings = _settings(scan)
    settings.fit(run.index.num_groups)
    return open_policy(settings, run)


def asks_the_model(scan: Scan) -> bool:
    """Whether the policy tries scan groups on a model, and so needs `loader(probe=...)`."""
    if isinstance(scan, Mapping):
        return scan.get("name") in _ASK_THE_MODEL or asks_the_model(scan.get("floor", 1))
    return scan in _ASK_THE_MODEL


def _static_group(scan: Scan, index: RecordIndex) -> int | None:
    """Return the one group of a static scan; None for a policy."""
    if scan == BASELINE:
        if index.encoding != "baseline":
            raise ConfigError(
                f"scan={scan!r}: wanted a scan group, since these are {index.encoding} records."
            )
        return 1
    if scan in (ALL, FULL):
        return index.num_groups
    return _group(scan)


def _group(scan: Scan) -> int | None:
    """Return the group of `2` or `"group_2"`; None for anything else."""
    if isinstance(scan, int) and not isinstance(scan, bool):
        return scan
    found = re.fullmatch(r"group_(\d+)", scan) if isinstance(scan, str) else None
    return int(found[1]) if found else None


def _settings(scan: Scan) -> ScanConfig:
    """Build a policy's settings from its name, or from a dict of its name and settings."""
    given: dict[str, Any] = {"name": scan}
    if isinstance(scan, Mapping):
        given = dict(scan)
    name = given.get("name")
    policies = sorted(set(schemas("scan")) - {"static"})
    if name not in policies:
        raise ConfigError(
            f"scan={scan!r}: wanted group_1, group_2, ..., all, baseline, or a policy: its name, one of "
            f"{', '.join(policies)}, or a dict of its name and settings."
        )
    schema = component("scan", name).schema
    assert schema is not None
    known = {name: formatannotation(hint) for name, hint in get_type_hints(schema).items()}
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise ConfigError(f"scan={scan!r}: {name} has no {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    if "floor" in known:
        given["floor"] = _floor(given.get("floor", 1))
    typed = OmegaConf.structured(schema)
    for key, value in given.items():
        try:
            typed[key] = value
        except OmegaConfBaseException as error:
            wanted = f"{key!r} of {name} is {value!r}, wanted {known[key]}"
            raise ConfigError(f"scan={scan!r}: {wanted}.{_meant(key, known)}") from error
    try:
        built: Any = OmegaConf.to_object(typed)
        group = typed["group"]
    except OmegaConfBaseException as error:
        raise ConfigError(f"scan={scan!r}: {error}.") from error
    settings: ScanConfig = built
    if "group" in given and settings.group != group:  # all schemas have it, but not all use it
        raise ConfigError(f"scan={scan!r}: {name} does not use 'group'.{_meant('group', known)}")
    return settings


def _meant(key: str, known: Mapping[str, Any]) -> str:
    own = known.keys() - {key} - {field.name for field in fields(ScanConfig)}
    near = difflib.get_close_matches(key, own, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _floor(scan: Scan) -> ScanConfig:
    group = _group(scan)
    return _settings(scan) if group is None else ScanConfig(name=f"group_{group}", group=group)
