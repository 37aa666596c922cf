"""Files that a reader has seen, for noticing later changes and reporting what was left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pcr_exp.errors import DatasetError, printable
from pcr_exp.system.words import counted

JPEG_SUFFIXES = (".jpg", ".jpeg")


State: TypeAlias = tuple[int, int]
"""State of a file: (bytes, time of its last change in ns); of a folder: (number of entries, that time)."""


@dataclass(slots=True)
class SeenFiles:
    """Folders listed, tables read, and remarks for whoever prepares the dataset."""

    folders: dict[Path, State] = field(default_factory=dict)
    """State of every folder whose contents determine the images; its time is from before the listing."""
    tables: dict[Path, State] = field(default_factory=dict)
    """State, from before it was read, of every file that labels are read from."""
    refused: dict[str, str] = field(default_factory=dict)
    """Rows of a table that were left out because they are not images -> reason."""
    remarks: list[str] = field(default_factory=list)
    """Remarks on files that were left out, and on classes that splits lack."""
    num_images: int = 0
    others: Counter[str] = field(default_factory=Counter)
    """Number of files next to the images that are not JPEG by their names, by suffix."""
    nested: list[Path] = field(default_factory=list)
    """Folders next to the images, which are not searched."""

    def images(self, folder: Path) -> list[Path]:
        """Return the folder's JPEG files by suffix (any case), sorted; hidden files are ignored."""
        names = []
        for entry in self._entries(folder):
            if entry.name.startswith("."):
                continue
            if entry.name.lower().endswith(JPEG_SUFFIXES):
                names.append(entry.name)
            elif _is_folder(entry):
                self.nested.append(Path(entry.path))
            else:
                self.others[os.path.splitext(entry.name)[1].lower() or "(no suffix)"] += 1  # noqa: PTH122
        self.num_images += len(names)
        return [folder / name for name in sorted(names)]

    def class_names(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`, sorted; hidden ones are ignored."""
        names, loose = [], []
        for entry in self._entries(folder):
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                names.append(entry.name)
            elif entry.name.lower().endswith(JPEG_SUFFIXES):
                loose.append(entry.name)
        if loose:
            self.remarks.append(
                f"left out {counted(len(loose), 'JPEG file')} in {folder} itself, outside its class folders: "
                f"{some(sorted(loose))}."
            )
        return sorted(names)

    def table(self, path: Path) -> Path:
        """Note a file that labels are read from, and return it."""
        self.tables[path] = file_state(path)
        return path

    def missing(self, path: Path) -> None:
        """Note the folder of a missing file: it changes when the file appears."""
        if path.parent not in self.folders:
            with suppress(OSError):
                self.folders[path.parent] = folder_state(path.parent)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            changed_at_ns = folder.stat().st_mtime_ns
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError as error:
            raise DatasetError(
                f"{folder} cannot be listed: {error.strerror}. Check its permissions."
            ) from error
        self.folders[folder] = (len(found), changed_at_ns)
        return found

    def all_remarks(self) -> list[str]:
        """Return all remarks, in full sentences."""
        remarks = list(self.remarks)
        if self.refused:
            named = some(f"{row}: {why}" for row, why in self.refused.items())
            remarks.append(f"{counted(len(self.refused), 'row', 'are')} left out: {named}.")
        if self.others:
            counts = ", ".join(f"{num} {suffix}" for suffix, num in self.others.most_common())
            remarks.append(
                f"next to {counted(self.num_images, 'JPEG file')} there are {counts}, which are ignored: "
                "only .jpg and .jpeg files are read. Convert the images among them to JPEG."
            )
        if self.nested:
            remarks.append(
                f"{counted(len(self.nested), 'folder', 'are')} next to the images and not searched: "
                f"{some(str(path) for path in sorted(self.nested))}."
            )
        return remarks


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False


def folder_state(folder: Path) -> State:
    """Return the number of entries of a folder, and the time of its last change.

    Raises:
        OSError: it cannot be listed.
    """
    changed_at_ns = folder.stat().st_mtime_ns
    return len(os.listdir(folder)), changed_at_ns  # noqa: PTH208 (a Path per entry would take many times as long)


def file_state(path: Path) -> State:
    """Return the length of a file, and the time of its last change.

    Raises:
        OSError: its status cannot be read.
    """
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def some(names: Iterable[str], limit: int = 3) -> str:
    """List the first few names, printable, and the total number if there are more."""
    names = list(names)
    return ", ".join(map(printable, names[:limit])) + (
        f", ... ({len(names)} in all)" if len(names) > limit else ""
    )
