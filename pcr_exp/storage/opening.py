"""Whether this thread opens records now, or reads them: who opens is told sooner that a server refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_this_thread = threading.local()


@contextmanager
def opening() -> Iterator[None]:
    """Within, a request of this thread that is refused at once is made once more at most.

    Who opens an address may have misspelt it, and waits for the answer. A run that is under way has read from
    there before: it goes on asking (`storage.retry`).
    """
    before = is_opening()
    _this_thread.opens = True
    try:
        yield
    finally:
        _this_thread.opens = before


def is_opening() -> bool:
    """Whether this thread is within `opening`."""
    return getattr(_this_thread, "opens", False)
