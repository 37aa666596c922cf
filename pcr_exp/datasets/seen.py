"""Files that a reader has seen, to notice later changes and to tell which were left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pcr_exp.errors import printable
from pcr_exp.system.words import counted

JPEG_SUFFIXES = (".jpg", ".jpeg")


State: TypeAlias = tuple[int, int]
"""A state: a file's bytes and the time of its last change in ns; a folder's entries, and that time."""


@dataclass(slots=True)
class SeenFiles:
    """Folders listed, tables read, and remarks for whoever prepares the dataset."""

    folders: dict[Path, State] = field(default_factory=dict)
    """Every folder whose contents decide which images there are, and (number of entries, time of its last
    change) from before it was listed."""
    tables: dict[Path, State] = field(default_factory=dict)
    """Every file that labels are read from, and (bytes, time of its last change) from before it was read."""
    refused: dict[str, str] = field(default_factory=dict)
    """Rows of a table that are no images, and why: left out."""
    remarks: list[str] = field(default_factory=list)
    """Remarks on files that were left out, and on classes that splits lack."""
    num_images: int = 0
    others: Counter[str] = field(default_factory=Counter)
    """Files that are no JPEG by their names, beside the images: number by suffix."""
    nested: list[Path] = field(default_factory=list)
    """Folders beside the images, which are not looked into."""

    def images(self, folder: Path) -> list[Path]:
        """The folder's JPEG files by suffix (any case), sorted; hidden files are not looked at."""
        names = []
        for entry in self._entries(folder):
            if entry.name.startswith("."):
                continue
            if entry.name.lower().endswith(JPEG_SUFFIXES):
                names.append(entry.name)
            elif entry.is_dir():
                self.nested.append(Path(entry.path))
            else:
                self.others[os.path.splitext(entry.name)[1].lower() or "(no suffix)"] += 1  # noqa: PTH122
        self.num_images += len(names)
        return [folder / name for name in sorted(names)]

    def class_names(self, folder: Path) -> list[str]:
        """Names of the folders in `folder`, sorted; hidden ones are not looked at."""
        names, loose = [], []
        for entry in self._entries(folder):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                names.append(entry.name)
            elif entry.name.lower().endswith(JPEG_SUFFIXES):
                loose.append(entry.name)
        if loose:
            self.remarks.append(
                f"{len(loose)} JPEG files lie in {folder} itself, in no class folder, and are left out: "
                f"{some(sorted(loose))}."
            )
        return sorted(names)

    def table(self, path: Path) -> Path:
        """Note a file that labels are read from; returns it."""
        self.tables[path] = file_state(path)
        return path

    def missing(self, path: Path) -> None:
        """Note the folder of a file that is not there: it is changed when the file comes."""
        if path.parent not in self.folders:
            with suppress(OSError):
                self.folders[path.parent] = folder_state(path.parent)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        changed_at_ns = folder.stat().st_mtime_ns
        with os.scandir(folder) as entries:
            found = list(entries)
        self.folders[folder] = (len(found), changed_at_ns)
        return found

    def all_remarks(self) -> list[str]:
        """Everything to be said, in full sentences."""
        remarks = list(self.remarks)
        if self.refused:
            named = some(f"{row}: {why}" for row, why in self.refused.items())
            remarks.append(f"{counted(len(self.refused), 'row', 'are')} left out: {named}.")
        if self.others:
            counts = ", ".join(f"{num} {suffix}" for suffix, num in self.others.most_common())
            remarks.append(
                f"beside {counted(self.num_images, 'JPEG file')} lie {counts}, which are not looked at: "
                "only .jpg and .jpeg are. Convert the images among them to JPEG."
            )
        if self.nested:
            remarks.append(
                f"{counted(len(self.nested), 'folder', 'are')} beside the images and not looked into: "
                f"{some(str(path) for path in sorted(self.nested))}."
            )
        return remarks


def folder_state(folder: Path) -> State:
    """How many entries a folder has, and when it was changed last.

    Raises:
        OSError: it cannot be listed.
    """
    changed_at_ns = folder.stat().st_mtime_ns
    return len(os.listdir(folder)), changed_at_ns  # noqa: PTH208 (a Path per entry would take many times as long)


def file_state(path: Path) -> State:
    """How long a file is, and when it was changed last.

    Raises:
        OSError: it cannot be looked at.
    """
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def some(names: Iterable[str], limit: int = 3) -> str:
    """The first few names, printable, and that there are more."""
    names = list(names)
    return ", ".join(map(printable, names[:limit])) + (
        f", ... ({len(names)} in all)" if len(names) > limit else ""
    )
