"""Which files lie in a folder of records, where the storage can tell."""

from __future__ import annotations

import os
from pathlib import Path

from pcr_exp.errors import StorageError
from pcr_exp.storage.objects import ObjectStorage
from pcr_exp.storage.open import PerProcessStorage


def names_in(storage: PerProcessStorage, folder: str) -> set[str] | None:
    """Names of the files right in a folder, none if it is not there; None if this storage lists nothing.

    Raises:
        StorageError: it does not let itself be listed.
    """
    if "://" not in storage.root:
        path = Path(storage.root) / folder
        try:
            with os.scandir(path) as entries:
                return {entry.name for entry in entries if not entry.is_dir()}
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except OSError as error:
            raise StorageError(f"{path} cannot be listed: {error.strerror or error}.") from error
    opened = storage.opened.inner
    if not isinstance(opened, ObjectStorage) or storage.root.startswith("http"):
        return None
    below = f"{folder}/" if folder else ""
    names = (path.removeprefix(below) for path, _ in opened.sizes(folder))
    return {name for name in names if "/" not in name}
