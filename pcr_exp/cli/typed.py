"""Overrides of the command line: reject invalid ones, and add those of `runner=smoke`."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.components import option_names
from pcr_exp.config.compose import composed
from pcr_exp.config.credentials import credential_variables
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.errors import ConfigError
from pcr_exp.redaction import HIDDEN, redacted_words


def check_overrides(overrides: Sequence[str], *, sweeps: bool) -> None:
    """Reject secrets, overrides that Hydra cannot parse, and sweeps without -m.

    Raises:
        ConfigError: an override holds a secret, cannot be parsed or sweeps. Where possible, the message
            shows how to type it.
    """
    for text in overrides:
        _refuse_secret(text)
    parser = OverridesParser.create()
    for text in overrides:
        key, given, value = text.partition("=")
        if not given:
            continue  # `~key` and the like: Hydra's own message is good
        try:
            parsed = parser.parse_override(text)
        except HydraException as error:
            reason = str(error).splitlines()[0]
            if _reads(parser, quoted := quote(key, value)):
                raise ConfigError(
                    f"{text}: this value has characters with a special meaning to Hydra ({reason}). Type it "
                    f"in quotes: {quoted}"
                ) from error
            raise ConfigError(f"{text}: Hydra cannot read this ({reason}).") from error
        if not parsed.is_sweep_override():
            _require_option(text, parsed.value())
        if parsed.is_sweep_override() and not sweeps:
            raise ConfigError(
                f"{text}: a comma separates the values of a sweep, which needs -m. Write a list as "
                f"{key}=[a,b], and a value with a comma as {quote(key, value)}"
            )


def _require_option(text: str, value: object) -> None:
    """Raise ConfigError for a group's option that is no name: Hydra would fail without a word for users."""
    group = text.partition("=")[0].lstrip("+~")
    options = option_names(group)
    if options and not isinstance(value, str | list):
        named = f"group_{value}" if f"group_{value}" in options else ""
        raise ConfigError(
            f"{text}: wanted an option of {group}, which are {', '.join(options)}."
            + (f" Did you mean {group}={named}?" if named else "")
        )


def unknown_keys(overrides: Sequence[str], known: Collection[str]) -> list[str]:
    """Return advice for each override of a setting that does not exist: the most similar one that does."""
    advice = []
    for text in overrides:
        key, given, _ = text.partition("=")
        if (
            not given
            or key.startswith(("+", "~", "hydra"))
            or any(f"{key}.".startswith(f"{k}.") for k in known)
        ):
            continue
        similar = get_close_matches(key, known, 1)
        meant = f"Did you mean {similar[0]}?" if similar else "--help lists all settings."
        advice.append(f"{key}: there is no such setting. {meant}")
    return advice


def _refuse_secret(override: str) -> None:
    """Raise ConfigError for a secret before it is used: sweeps and shells record the command line."""
    if redacted_words([override]) == [override]:
        return
    key = override.partition("=")[0]
    way = f"set it in the environment ({credential_variables()})"
    if not key.lstrip("+~").startswith("records."):
        way = f"set it in the environment, and type {key}='${{oc.env:NAME}}' with the variable's name"
    raise ConfigError(
        f"{key}={HIDDEN}: a secret, which the shell's history and the files of runs would keep; {way}."
    )


def quote(key: str, value: str) -> str:
    """Quote `key=value` for a shell so that Hydra takes `value` literally, whatever it contains."""
    # In Hydra, backslashes are literal except before a quote.
    escaped = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + (m[2] and r"\""), value)
    return shlex.quote(f'{key}="{escaped}"')


def _reads(parser: OverridesParser, quoted: str) -> bool:
    (text,) = shlex.split(quoted)
    try:
        return isinstance(parser.parse_override(text).value(), str)
    except HydraException:
        return False


SMOKE = "runner=smoke"

_OF_ANY_DATASET = {field.name for field in fields(DatasetConfig)}


def smoke_overrides(runner: str, typed: Sequence[str]) -> list[str]:
    """Return the overrides that make a command small; none unless `runner=smoke` was typed.

    Settings that were typed are left alone. If a dataset was typed, settings that only the embedded dataset
    has are left out.

    Args:
        runner: Name of the command, such as `train`.
        typed: Overrides of the command line.

    Raises:
        ConfigError: the command has no small size.
    """
    if SMOKE not in typed:
        return []
    chosen = [text for text in typed if text.startswith(("experiment=", "components=", "smoke."))]
    config = composed(runner, chosen)
    if "smoke" not in config:
        raise ConfigError(f"{SMOKE}: wanted a command that trains or measures; leave it out of {runner}.")
    return beside(config["smoke"], typed)


def acting(config: DictConfig, loaded: Any, typed: Sequence[str]) -> DictConfig:
    """Return a smoke run's configuration with scan settings and epochs that let its policy decide once.

    Typed settings and scan settings in the experiment's `smoke` are left alone; epochs in `smoke` may rise.

    Args:
        config: The composed configuration.
        loaded: The same configuration as objects.
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
    if asked in (None, f"training.epochs={loaded.smoke.get('training.epochs')}"):  # at most set by `smoke`
        small.training.epochs = max(loaded.training.epochs, num_epochs)
    return small


def require_used(loaded: Any, typed: Sequence[str]) -> None:
    """Raise ConfigError for a typed scan group that the scan policy does not use.

    Not a check of the settings themselves: recorded ones hold a group in any case.
    """
    group = next((text for text in typed if text.lstrip("+").startswith("scan.group=")), None)
    if group is not None and isinstance(loaded, TrainConfig) and not loaded.scan.uses_group:
        raise ConfigError(
            f"{group}: scan={loaded.scan.name} does not use it. Leave it out; --help scan lists settings."
        )


def beside(smoke: Mapping[str, Any], typed: Sequence[str]) -> list[str]:
    """Return the smoke overrides that were not set on the command line and suit the typed dataset."""
    given = {text.partition("=")[0].lstrip("+~") for text in typed}
    return [
        f"{key}={value}"
        for key, value in smoke.items()
        if value is not None and key not in given and not _of_another_dataset(key, given)
    ]


def _of_another_dataset(key: str, given: set[str]) -> bool:
    group, _, name = key.partition(".")
    return group == "dataset" and "dataset" in given and name != "" and name not in _OF_ANY_DATASET
