"""Remote storage gets a second chance: what came damaged may be whole where it lies."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from pcr_exp.errors import RecordError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def once_more_if_remote(
    read: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[Any, Parameters], Result]:
    """For a method that reads and verifies: what fails to be verified is read once more.

    Only where the object's `storage` says `is_remote`: what lies on a disk is the same the second time. The
    method must raise RecordError for nothing else than what it read.

    Raises:
        RecordError: what came is cut short or damaged, from remote storage both times.
    """

    @functools.wraps(read)
    def verified(self: Any, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not getattr(self.storage, "is_remote", False):
            return read(self, *args, **kwargs)
        try:
            return read(self, *args, **kwargs)
        except RecordError as error:
            log.warning("%s It is read once more, since it came from %s.", error, self.storage)
        try:
            return read(self, *args, **kwargs)
        except RecordError as error:
            raise RecordError(
                f"{error} It was read twice from {self.storage}, and was wrong both times: either it is "
                "damaged there, or something on the way (a proxy, a cache) damages it each time."
            ) from error

    return verified
