"""A storage that can be handed to other processes: each opens its own when it first reads."""

from __future__ import annotations

import os

from pcr_exp.config.storage import StorageConfig
from pcr_exp.redaction import redacted_text
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.open import open_storage


class PerProcessStorage:
    """The unthrottled storage at an address, which is all that is pickled of it.

    Connections, and the thread that a driver of fsspec runs, do not survive a fork: a child opens anew.
    """

    def __init__(self, root: str) -> None:
        """`root`: a local folder or an fsspec address. Nothing is opened yet."""
        self.root = root
        self._opened: tuple[int, CountingStorage] | None = None

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the opened storage's `read`."""
        return self.opened.read(path, offset, length)

    def size(self, path: str) -> int:
        """As the opened storage's `size`."""
        return self.opened.size(path)

    @property
    def is_remote(self) -> bool:
        """Whether what comes may be damaged on its way, and be right when it is read again."""
        return self.opened.is_remote

    @property
    def opened(self) -> CountingStorage:
        """This process's own.

        Raises:
            StorageError: the address cannot be opened.
        """
        if self._opened is None or self._opened[0] != os.getpid():
            storage = open_storage(self.root, StorageConfig(name="unlimited"))
            self._opened = os.getpid(), CountingStorage(storage)
        return self._opened[1]

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "_opened": None}

    def __str__(self) -> str:
        return redacted_text(self.root)
