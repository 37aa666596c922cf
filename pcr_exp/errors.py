"""Errors shown to users. Each message states what was given, what was wanted and what to do."""

from pcr_exp.places import as_typed
from pcr_exp.redaction import redacted_text


def printable(text: str) -> str:
    r"""Return a text as one safe line: unprintable characters are escaped, as `\n`, `\x1b`, `\u202e`.

    For content of files, which may hold anything: ids, classes, paths. In a terminal, an escape sequence
    could clear the screen, and a newline could make an id look like one of our messages.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


class PcrExpError(Exception):
    """Base of every error that this package raises on purpose. Runners print it without a traceback.

    The message is one line, made `printable`. Messages are written with a checkout's commands, which are
    replaced by the commands to type here. Secrets, such as the password in an address, are hidden.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(redacted_text(as_typed(message))))


class ConfigError(PcrExpError):
    """A configuration key has an invalid value."""


class SettingError(ConfigError):
    """A `ConfigError` with its parts, so that the API can replace the key by the name of its own argument."""

    def __init__(self, key: str, given: object, wanted: str) -> None:
        super().__init__(f"{key}={given!r}: wanted {wanted}.")
        self.key, self.given, self.wanted = key, given, wanted

    def __reduce__(self) -> tuple[type["SettingError"], tuple[str, object, str]]:
        return SettingError, (self.key, self.given, self.wanted)


class DatasetError(PcrExpError):
    """A dataset's folder does not have its publisher's layout."""


class ImageError(PcrExpError):
    """An image cannot be stored faithfully. The message is the reason that `rejected.csv` lists."""


class RecordError(PcrExpError):
    """A record or its index is missing, damaged, or does not match what it is read with."""


class StorageError(PcrExpError):
    """Storage could not deliver the requested bytes."""


class MissingFileError(StorageError):
    """Storage answered that the file does not exist."""


class RefusedError(StorageError):
    """Storage denied access to a file; some servers also answer this for files that do not exist."""


class RunError(PcrExpError):
    """A run directory is in use, damaged, or belongs to another configuration."""


class LoaderError(PcrExpError):
    """The loader cannot deliver a batch: a worker died, or the loader is paused or closed."""


class GradientError(PcrExpError):
    """A message from another process cannot be decoded: bytes were lost, or the configurations differ."""
