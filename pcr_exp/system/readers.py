"""Standard output whose reader may leave early, as `head` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class _LeftAlone:
    """A text stream that drops what is written after its reader has left; otherwise the stream itself.

    Work does not end with its reader: a run goes on, and its rows are in files.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # takes what is still in the buffer, too
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def leaving_readers() -> Iterator[None]:
    """Within, and when it ends, a reader of stdout who has left raises nothing."""
    before = sys.stdout
    watched = _LeftAlone(before)
    sys.stdout = watched
    try:
        yield
    finally:
        watched.flush()
        if sys.stdout is watched:
            sys.stdout = before
