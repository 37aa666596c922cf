"""The errors that people read: each says what was given, what was wanted and what to do."""

from pcr_exp.places import as_typed
from pcr_exp.redaction import redacted_text


def printable(text: str) -> str:
    r"""One line that is safe to print: what is not printable is shown escaped, as `\n`, `\x1b`, `\u202e`.

    For what comes out of files and may hold anything: ids, classes, paths. Sent to a terminal, an escape
    sequence clears it, and a newline makes an id look like a message of ours.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


class PcrExpError(Exception):
    """Base of every error that this package raises on purpose. Runners print it without a traceback.

    Its message is one line, made `printable`. Commands in it are those of a checkout; it has them as they are
    typed here. Secrets in it, such as the password of an address, are not shown.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(redacted_text(as_typed(message))))


class ConfigError(PcrExpError):
    """A configuration key has a value that cannot work."""


class SettingError(ConfigError):
    """As `ConfigError`, in its parts: the API gives the setting the name of its own argument."""

    def __init__(self, key: str, given: object, wanted: str) -> None:
        super().__init__(f"{key}={given!r}: wanted {wanted}.")
        self.key, self.given, self.wanted = key, given, wanted

    def __reduce__(self) -> tuple[type["SettingError"], tuple[str, object, str]]:
        return SettingError, (self.key, self.given, self.wanted)


class DatasetError(PcrExpError):
    """A dataset's folder does not have the layout that its publisher gives it."""


class ImageError(PcrExpError):
    """One image cannot be stored faithfully; the message is the reason that goes into `rejected.csv`."""


class RecordError(PcrExpError):
    """A record or its index is missing, damaged, or does not match what it is read with."""


class StorageError(PcrExpError):
    """Storage could not deliver the bytes that were asked for."""


class MissingFileError(StorageError):
    """Storage answered that there is no such file."""


class RefusedError(StorageError):
    """Storage answered that this file is not for us; some servers say so of files that do not exist."""


class RunError(PcrExpError):
    """A run directory is in use, damaged, or belongs to another configuration."""


class LoaderError(PcrExpError):
    """The loader cannot deliver a batch: a worker died, or it was asked while paused or closed."""


class GradientError(PcrExpError):
    """What another process sent does not decode: bytes were lost, or its configuration is another."""
