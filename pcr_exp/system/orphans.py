"""Processes that end with the one that started them, however that ended.

The kernel offers a death signal, but sends it when the *thread* that forked ends. The end of a pipe would say
the same as what is used here, but every process that is forked later holds it open as well.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

POLL_S = 0.5
PATIENCE_S = 60.0
"""For the end of a process that may save a checkpoint first."""


def end_with_parent(parent: int, end: Callable[[], None] | None = None) -> None:
    """Call `end`, soon after process `parent`, which started this one, has ended.

    Args:
        parent: Its process id, as it knows it itself: this process may be an orphan already.
        end: By default this process ends at once. It has nothing to save, and what it could wait for (a
            queue's other side, a lock) may never come.
    """
    watch = threading.Thread(
        target=_watch, args=(parent, end or _end_at_once), name="pcr-exp-parent", daemon=True
    )
    watch.start()


def _watch(parent: int, end: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    end()


def _end_at_once() -> None:
    os._exit(1)


def terminate() -> None:
    """End this process by SIGTERM, which a training run takes as a wish; after a minute, at once."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)
    os._exit(128 + signal.SIGTERM)
