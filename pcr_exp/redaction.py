"""Hide secrets in everything that is written or shown.

Three things are secrets: values under a name such as `password`, `client_secret` or `Authorization`, at any
depth of a mapping; the user and password in an address (`https://me:word@host`); and the parameters that sign
an address (`?sig=`, `X-Amz-Signature`). They belong in the environment, which this package never writes out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

HIDDEN = "***"

_PARTS = (
    r"secret|passw|passphrase|credential|authorization|signature|connection[_\- ]?string|"
    r"(?:access|account|api|auth|master|private|shared|service|storage)[_\-]?key|"
    r"\btokens?\b|[a-z0-9_\-]tokens?|token[_\-]"
)
"""Parts that make a name secret anywhere, even within a sentence."""
_NAME = re.compile(_PARTS, re.IGNORECASE)
_WORDS = {"pwd", "auth", "sig", "bearer", "cookie", "cookies"}
_WORDS_OF_CLIENTS = {"key", "keys", "pass"}
"""Words that are secret only among a storage client's settings; elsewhere, as in `label_key`, they are
not."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_HARMLESS = re.compile(r"(?:file|path|endpoint|kms_?key_?id)$|tokeniz", re.IGNORECASE)
"""Names that state where a secret is stored, or which secret is meant."""
_NUMERIC = re.compile(r"secret|passw|pwd", re.IGNORECASE)
"""Names under which even a number is secret; `max_tokens` is not one of them."""
_HEADER_NAME = re.compile(r"authorization|cookie|^x-", re.IGNORECASE)

# Each pattern begins with something rare, so that a text of a hundred kilobytes is scanned only once.
_USER_IN_ADDRESS = re.compile(r"(?P<http>https?)?://(?P<user>[^\s/?#'\"<>`]*)@", re.IGNORECASE)
_PARAMETER = re.compile(r"(?P<before>[?&](?P<name>[\w.~%-]{1,64})=)[^&\s'\"#<>`]+")
_SWITCH = r"(?:true|false|null|none)(?:[\s,.;&()\[\]{}'\"]|$)"
_NO_SECRET = rf"(?!['\"]?(?:\$\{{|{re.escape(HIDDEN)}|{_SWITCH}))"
_QUOTED = r"'[^'\n]*'|\"[^\"\n]*\""
_ASSIGNED = re.compile(
    rf"(?P<before>(?:{_PARTS})[\w.-]{{0,64}}(?:\s=\s|=){_NO_SECRET})(?:{_QUOTED}|[^\s,;&'\"`<>()\[\]{{}}]+)",
    re.IGNORECASE,
)
_IN_MAPPING = re.compile(
    rf"(?P<before>(?:{_PARTS})[\w.-]{{0,64}}['\"]\s?:\s?{_NO_SECRET})(?:{_QUOTED})", re.IGNORECASE
)
_IN_BRACES = re.compile(
    rf"(?P<before>[{{,]\s?(?P<name>[\w.-]{{1,64}}):\s?{_NO_SECRET})(?:{_QUOTED}|[^,{{}}]+)"
)
"""A mapping in Hydra's command-line syntax."""
_HEADER = re.compile(
    rf"(?P<before>\b(?:proxy-)?authorization['\"]?\s?[:=]\s?['\"]?{_NO_SECRET})"
    r"(?:[\w-]+\s+)?[^\s'\",&}]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<before>\bbearer\s+)[\w.~+/=-]{12,}", re.IGNORECASE)


def is_secret_name(name: str, *, of_client: bool = False) -> bool:
    """Return whether values of this name are secret. `of_client`: it is a setting of a storage client."""
    words = [word.lower() for word in _WORD.findall(name)]
    return _HARMLESS.search(name) is None and (
        _NAME.search(name) is not None
        or not _WORDS.isdisjoint(words)
        or (of_client and not _WORDS_OF_CLIENTS.isdisjoint(words))
        or any(word.startswith("sas") for word in words)
    )


def redacted(value: Any, name: str = "", *, of_client: bool = False) -> Any:
    """Return plain values (dicts, lists, strings, numbers) with their secrets hidden, otherwise unchanged.

    `name` is the name of the value; `of_client` is as in `is_secret_name`.
    """
    is_secret = is_secret_name(name, of_client=of_client)
    if isinstance(value, Mapping):
        return {
            key: redacted(part, name if is_secret else str(key), of_client=of_client)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        if _is_header(value):
            return [value[0], HIDDEN]
        return [redacted(part, name, of_client=of_client) for part in value]
    if isinstance(value, str):
        return HIDDEN if value and is_secret and not _is_no_secret(value) else redacted_text(value)
    hides = isinstance(value, bytes) or (
        isinstance(value, int | float) and not isinstance(value, bool) and _NUMERIC.search(name) is not None
    )
    return HIDDEN if hides and is_secret else value


def find_secret(options: Any, name: str) -> str | None:
    """Return the dotted name of the first secret in a storage client's settings called `name`, or None."""
    own = name.rpartition(".")[2]
    if isinstance(options, Mapping) and not is_secret_name(own, of_client=True):
        found = (find_secret(part, f"{name}.{key}") for key, part in options.items())
        return next((secret for secret in found if secret is not None), None)
    plain = list(options) if isinstance(options, tuple) else options
    return name if redacted(plain, own, of_client=True) != plain else None


def _is_header(pair: Sequence[Any]) -> bool:
    """Return whether a pair is a secret header's name and value, as headers of a request may be given."""
    is_pair = len(pair) == 2 and all(isinstance(part, str) for part in pair)
    is_named = is_pair and _HEADER_NAME.search(pair[0]) is not None and is_secret_name(pair[0])
    return is_named and bool(pair[1]) and not _is_no_secret(pair[1])


def _is_no_secret(value: str) -> bool:
    """Return whether a value is a switch, or only refers to a secret, as `${oc.env:TOKEN}` does."""
    bare = value.strip("'\"").lower()
    return bare in ("true", "false", "null", "none") or (bare.startswith("${") and bare.endswith("}"))


def redacted_text(text: str) -> str:
    """Return a text without the secrets in its addresses and in its assignments to secret names."""
    if "@" in text and "://" in text:
        text = _USER_IN_ADDRESS.sub(_without_user, text)
    if "=" in text or ":" in text:
        text = _HEADER.sub(_hide, text)
        text = _PARAMETER.sub(_hide_if_named_so, text)
        text = _ASSIGNED.sub(_hide_assigned, text)
        text = _IN_MAPPING.sub(_hide, text)
    return _BEARER.sub(_hide, text)


def _without_user(match: re.Match[str]) -> str:
    # The user in an http address may be a token; the one in abfs://container@account is not.
    has_secret = match["http"] or ":" in match["user"]
    return f"{match['http'] or ''}://{HIDDEN}@" if has_secret else match[0]


def _hide(match: re.Match[str]) -> str:
    before = match["before"]
    quote = match[0][len(before)]
    return f"{before}{quote}{HIDDEN}{quote}" if quote in "'\"" else f"{before}{HIDDEN}"


def _hide_if_named_so(match: re.Match[str], *, of_client: bool = True) -> str:
    return _hide(match) if is_secret_name(match["name"], of_client=of_client) else match[0]


def _hide_assigned(match: re.Match[str]) -> str:
    before = match["before"]
    is_count = match[0][len(before) :].isdigit() and not _NUMERIC.search(before)
    return match[0] if is_count or _HARMLESS.search(before.rstrip(" =")) else _hide(match)


def redacted_words(words: Sequence[str]) -> list[str]:
    """Return a command's words with secrets hidden in `--password=...`, `--token ...` and `group.key=...`."""
    shown: list[str] = []
    hides_next = False
    for word in words:
        name, assigns, value = word.partition("=")
        of_client = "storage_options" in name
        is_secret = is_secret_name(name.rpartition(".")[2], of_client=of_client) and not _is_no_secret(value)
        if hides_next and not word.startswith("-"):
            shown.append(HIDDEN)
        elif assigns and value and is_secret:
            shown.append(f"{name}={HIDDEN}")
        else:
            hide = partial(_hide_if_named_so, of_client=of_client)
            shown.append(redacted_text(_IN_BRACES.sub(hide, word)))
        hides_next = word.startswith("--") and not assigns and is_secret
    return shown


class RedactingFormatter(logging.Formatter):
    """A log formatter that hides secrets, also in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted_text(super().format(record))
