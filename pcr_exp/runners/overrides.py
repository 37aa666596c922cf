"""What was typed wrongly, before Hydra composes it: its errors do not say how to quote."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from pcr_exp.config.credentials import credential_variables
from pcr_exp.errors import ConfigError
from pcr_exp.redaction import HIDDEN, redacted_words


def check_overrides(overrides: Sequence[str], *, sweeps: bool) -> None:
    """Refuse secrets, what Hydra could not read, and a comma where nothing is swept.

    Raises:
        ConfigError: an override holds a secret, or its value has signs that mean something to Hydra; the
            message has the override as it is to be typed.
    """
    for text in overrides:
        _refuse_secret(text)
    parser = OverridesParser.create()
    for text in overrides:
        key, given, value = text.partition("=")
        if not given:
            continue  # `~key` and the like: Hydra's own words are good
        try:
            parsed = parser.parse_override(text)
        except HydraException as error:
            reason = str(error).splitlines()[0]
            if _reads(parser, quoted := quote(key, value)):
                raise ConfigError(
                    f"{text}: this value has signs that mean something to Hydra ({reason}). "
                    f"Type it in quotes: {quoted}"
                ) from error
            raise ConfigError(f"{text}: Hydra cannot read this ({reason}).") from error
        if parsed.is_sweep_override() and not sweeps:
            raise ConfigError(
                f"{text}: a comma separates the values of a sweep, which -m begins. A list is typed "
                f"{key}=[a,b], and a value that has a comma in it {quote(key, value)}"
            )


def _refuse_secret(override: str) -> None:
    """Before anything is made of it: a sweep writes down what was typed, and so do shells."""
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
    """`key=value` for a shell, so that Hydra takes `value` as it is, whatever is in it."""
    # Hydra: backslashes stand for themselves, except before a quote.
    escaped = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + (m[2] and r"\""), value)
    return shlex.quote(f'{key}="{escaped}"')


def _reads(parser: OverridesParser, quoted: str) -> bool:
    (text,) = shlex.split(quoted)
    try:
        return isinstance(parser.parse_override(text).value(), str)
    except HydraException:
        return False
