"""Checks that loaders leave no threads or processes behind."""

import multiprocessing
import threading
import time
from collections.abc import Iterator

import pytest


def leftovers() -> list[str]:
    """Return the loader threads and worker processes that are still alive."""
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("pcr-exp-")]
    return threads + [str(process) for process in multiprocessing.active_children()]


@pytest.fixture
def nothing_is_left_behind() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 5
    while leftovers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert leftovers() == []
