"""What obstore's errors mean: they tell it by their names and texts alone."""

from __future__ import annotations

import re

from pcr_exp.errors import StorageError

_STATUS = re.compile(r"status code: (\d{3})")
_LASTING = {
    *("NotFound", "PermissionDenied", "Unauthenticated", "Precondition", "AlreadyExists", "NotModified"),
    *("NotSupported", "InvalidPath", "UnknownConfigurationKey"),
}
"""What the errors are called that a second request would meet too."""


def is_passing(error: BaseException) -> bool:
    """Whether the same request of obstore's may well succeed a little later.

    That is 408, 425, 429 and 5xx (501 and 505 excepted), connections that are
    refused, reset or silent, and bodies that end early.
    """
    from pcr_exp.storage.retry import is_passing_status

    name = type(error).__name__.removesuffix("Error")
    if isinstance(error, StorageError) or name in _LASTING or not _is_of_obstore(error):
        return False
    status = status_of(error)
    if status is not None:
        return is_passing_status(status)
    text = str(error)
    return "NotPartial" not in text and not is_unknown_name(error) and "HTTP error" in text


def is_unknown_name(error: BaseException) -> bool:
    """Whether the server's name does not exist, as far as DNS knows (and not for the moment only)."""
    text = str(error)
    return "dns error" in text and "Temporary failure" not in text


def _is_of_obstore(error: BaseException) -> bool:
    return type(error).__module__.startswith("obstore")


def status_of(error: BaseException | None) -> int | None:
    """The status that the server answered with, if it did."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def first_line(error: BaseException) -> str:
    """What happened; what follows in such an error is the client's inner state."""
    return str(error).partition("\n")[0]


def explained(where: str, error: Exception) -> StorageError:
    """What a user can do about an error of obstore's, or about the last of several (`GaveUpError`)."""
    from pcr_exp.storage.retry import GaveUpError

    often, reason = "", error
    if isinstance(error, GaveUpError):
        often = f" It was tried {error.num_attempts} times in {error.elapsed_s:.1f} s."
        assert isinstance(error.error, Exception)
        reason = error.error
    name, text = type(reason).__name__, str(reason)
    if isinstance(reason, FileNotFoundError):
        return missing(where)
    if name in ("UnauthenticatedError", "PermissionDeniedError"):
        return StorageError(
            f"{where} cannot be read or written: the server refuses it ({status_of(reason)}). Check "
            "the address, storage options (records.storage_options), and the credentials in the environment "
            "(AWS_ACCESS_KEY_ID, ...)."
        )
    if name == "NotSupportedError" or "NotPartial" in text:
        return StorageError(
            f"{where}: the server ignores range requests and sends whole files. Records need a server that "
            "answers them with 206 (nginx, S3, ...); Python's http.server does not."
        )
    if is_unknown_name(reason):
        return StorageError(
            f"{where} cannot be read: nobody knows a server of this name (DNS). Check the address."
        )
    if "TimedOut" in text:
        return StorageError(f"{where} cannot be read: the server does not answer (timed out).{often}")
    return StorageError(f"{where} cannot be read: {name}: {first_line(reason)}.{often}")


def missing(where: str) -> StorageError:
    """No object lies there."""
    return StorageError(f"{where} does not exist. Check the address.")
