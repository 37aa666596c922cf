"""Changes that users make to a folder of images after records were made from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from records_pictures import PLAIN
from records_storage import FolderStorage

from pcr_exp.records.index import RecordIndex
from pcr_exp.records.reader import RecordSet

SPLITS = ("train", "tune", "val")


def indexes(folder: Path, encoding: str = "pcr") -> dict[str, RecordIndex]:
    return {split: RecordSet(FolderStorage(folder), f"{split}/{encoding}").index for split in SPLITS}


def stored(folder: Path, encoding: str) -> dict[str, tuple[str, bytes, int]]:
    """Return every image in the records: id -> (split, bytes, label)."""
    found = {}
    for split in SPLITS:
        records = RecordSet(FolderStorage(folder), f"{split}/{encoding}")
        for number in range(len(records.index.records)):
            prefix = records.read_prefix(number, records.index.num_groups)
            for i, id_ in enumerate(prefix.ids):
                assert id_ not in found
                found[id_] = (split, prefix.encoded(i), int(prefix.labels["class"][i]))
    return found


def add(root: Path) -> None:
    (root / "train/cat/more.jpg").write_bytes(PLAIN)


def remove(root: Path) -> None:
    (root / "val/dog/1.jpg").unlink()


def overwrite(root: Path) -> None:
    with (root / "train/dog/2.jpg").open("ab") as file:
        file.write(b"!")


def exchange(root: Path) -> None:
    """Write different bytes of the same length; only the modification time reveals the change."""
    path = root / "train/dog/2.jpg"
    content = bytearray(path.read_bytes())
    content[15] ^= 1  # in the first segment, without effect on pixels
    path.write_bytes(content)


def relabel(root: Path) -> None:
    (root / "train/dog/2.jpg").rename(root / "train/cat/9.jpg")


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "add": (add, r": 1 added: train/cat/more\.jpg\. Set records\.on_change"),
    "remove": (remove, r": 1 removed: val/dog/1\.jpg\. "),
    "overwrite": (overwrite, r": 1 replaced: train/dog/2\.jpg\. "),
    "exchange": (exchange, r": 1 replaced: train/dog/2\.jpg\. "),
    "relabel": (relabel, r": 1 added: train/cat/9\.jpg; 1 removed: train/dog/2\.jpg\. "),
}
