"""Errors of settings, for callers in Python: they name arguments, where a configuration has keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pcr_exp.errors import ConfigError, SettingError


@contextmanager
def named_as_arguments() -> Iterator[None]:
    """A setting that is refused within has the name of its argument: `batch_size` for `training.batch_size`.

    A decorator as well. Keys of a policy stay whole: `scan.groups` are the groups of the argument `scan`.

    Raises:
        ConfigError: as within.
    """
    try:
        yield
    except SettingError as error:
        if error.key.startswith("scan."):
            raise
        argument, wanted = error.key.rpartition(".")[2], error.wanted.replace("null", "None")
        raise ConfigError(f"{argument}={error.given!r}: wanted {wanted}.") from error
