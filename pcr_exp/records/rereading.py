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
    read: Callable[Concatenate[Any, int, Parameters], Result],
) -> Callable[Concatenate[Any, int, Parameters], Result]:
    """For a method `read(record, ..., group)` of RecordSet that verifies: what fails to is read once more.

    Only where the storage says `is_remote`: what lies on a disk is the same the second time.

    Raises:
        RecordError: what came is cut short or damaged, from remote storage both times.
    """

    @functools.wraps(read)
    def verified(self: Any, record: int, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not getattr(self._storage, "is_remote", False):
            return read(self, record, *args, **kwargs)
        group = kwargs.get("group", args[-1] if args else None)
        self.index.prefix_bytes(record, group)  # what there is none of is refused before anything is read
        try:
            return read(self, record, *args, **kwargs)
        except RecordError as error:
            log.warning("%s It is read once more, since it came from %s.", error, self._storage)
        try:
            return read(self, record, *args, **kwargs)
        except RecordError as error:
            raise RecordError(
                f"{error} It was read twice from {self._storage}, and was wrong both times: either it is "
                "damaged there, or something on the way (a proxy, a cache) damages it each time."
            ) from error

    return verified
