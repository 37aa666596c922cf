"""Interprets obstore's errors by their names and messages."""

from __future__ import annotations

import re

from pcr_exp.errors import StorageError
from pcr_exp.storage import failures

_STATUS = re.compile(r"status code: (\d{3})")
_LASTING = {
    *("NotFound", "PermissionDenied", "Unauthenticated", "Precondition", "AlreadyExists", "NotModified"),
    *("NotSupported", "InvalidPath", "UnknownConfigurationKey"),
}
"""Names of errors that a retry would meet again."""
_SENT_AROUND = "error following redirect"
_NO_RANGES = "NotPartial"
_OTHER_RANGE = re.compile(r"Requested \d+\.\.\d+, got \d+\.\.\d+|Content-Range header not present")
_NO_LENGTH = "Content-Length Header missing"
_CREDENTIALS = re.compile(
    r"169\.254\.\d+\.\d+|/latest/(?:api/token|meta-data)|computeMetadata|metadata/identity|token request"
)
"""Addresses where the client looks for credentials that neither the environment nor a setting has."""
_UNTRUSTED = "InvalidCertificate"
_NEEDS_HTTPS = "BadScheme"
_REFUSED = ("ConnectionRefused", "NetworkUnreachable", "HostUnreachable", "dns error")


def is_passing(error: BaseException) -> bool:
    """Whether the same obstore request may succeed a little later.

    True for status 408, 425, 429 and 5xx (except 501 and 505), for connections that are refused, reset or
    silent, and for bodies that end early.
    """
    from pcr_exp.storage.retry import is_passing_status

    name = type(error).__name__.removesuffix("Error")
    if isinstance(error, StorageError) or name in _LASTING or not _is_of_obstore(error):
        return False
    status = status_of(error)
    if status is not None:
        return is_passing_status(status)
    text = str(error)
    signs = (_NO_RANGES, _SENT_AROUND, _NO_LENGTH, _UNTRUSTED, _NEEDS_HTTPS)
    lasts = any(sign in text for sign in signs) or _OTHER_RANGE.search(text)
    return not lasts and not is_unknown_name(error) and "HTTP error" in text


def is_refusal(error: BaseException) -> bool:
    """Whether no server is there to answer, or no credentials were found."""
    text = str(error)
    return any(sign in text for sign in _REFUSED) or wants_credentials(error)


def is_unknown_name(error: BaseException) -> bool:
    """Whether DNS does not know the server's name (and not just temporarily)."""
    text = str(error)
    return "dns error" in text and "Temporary failure" not in text


def wants_credentials(error: BaseException) -> bool:
    """Whether looking for credentials failed, rather than the request for the object."""
    return _is_of_obstore(error) and _CREDENTIALS.search(first_line(error)) is not None


def is_other_than_asked(error: BaseException) -> bool:
    """Whether the server sent a whole file, or one of unknown length, which may be a web page."""
    return _NO_RANGES in str(error) or "NotSupported" in type(error).__name__ or _NO_LENGTH in str(error)


def _is_of_obstore(error: BaseException) -> bool:
    return type(error).__module__.startswith("obstore")


def status_of(error: BaseException | None) -> int | None:
    """Return the status of the server's answer; None if there was none."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def first_line(error: BaseException) -> str:
    """Return the error itself, without the lines on the client's internal state."""
    return str(error).partition("\n")[0]


def explained(where: str, error: Exception) -> StorageError:
    """Translate an obstore error, or the last of several (`GaveUpError`), into one that names a remedy."""
    from pcr_exp.storage.retry import last_failure

    reason, often = last_failure(error)
    name, text = type(reason).__name__, str(reason)
    if isinstance(reason, FileNotFoundError):
        return failures.missing(where)
    if wants_credentials(reason):
        return failures.no_credentials(where)
    if name in ("UnauthenticatedError", "PermissionDeniedError"):
        return failures.refused(where, status_of(reason))
    if name == "NotSupportedError" or _NO_RANGES in text:
        return failures.no_ranges(where)
    if _SENT_AROUND in text:
        return failures.sent_around(where)
    if _OTHER_RANGE.search(text):
        return failures.other_range(where)
    if _NO_LENGTH in text:
        return failures.no_length(where)
    if is_unknown_name(reason):
        return failures.unknown_name(where)
    if _UNTRUSTED in text:
        return failures.untrusted(where)
    if "ConnectionRefused" in text:
        return failures.nobody_listens(where, often)
    if "TimedOut" in text:
        return failures.silent(where, often)
    return failures.other(where, reason, often)
