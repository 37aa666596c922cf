"""What an encode has finished so far: one receipt per record, until the index takes their place."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pcr_exp.records.atomic import TEMPORARY_SUFFIX, make_folder, write_atomic

_RECEIPTS_FOLDER = ".receipts"
REJECTED_FILE = "rejected.csv"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Record `number` is on disk in every encoding. `group_ends` maps encoding to the ends of its groups."""

    fingerprint: str
    number: int
    num_samples: int
    group_ends: dict[str, list[int]]
    rejected: list[list[str]]
    """[id, reason] of each image left out."""
    num_turned: int

    @property
    def file(self) -> str:
        return record_file(self.number)


def record_file(number: int) -> str:
    """The file name of a record."""
    return f"record-{number:06d}.pcr"


def write_receipt(folder: Path, receipt: Receipt) -> None:
    """Note that a record is done; only to be called when its files are synced."""
    make_folder(folder / _RECEIPTS_FOLDER)
    path = folder / _RECEIPTS_FOLDER / f"{receipt.file}.json"
    write_atomic(path, [json.dumps(asdict(receipt)).encode()])


def read_receipts(folder: Path, fingerprint: str) -> dict[int, Receipt]:
    """Receipts of an encode of the same files whose records are there in full, by record number."""
    receipts = {}
    for path in sorted((folder / _RECEIPTS_FOLDER).glob("*.json")):
        try:
            receipt = Receipt(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):  # of another version of this program: that record is made again
            continue
        if receipt.fingerprint == fingerprint and _is_stored(folder, receipt):
            receipts[receipt.number] = receipt
    return receipts


def remove_leftovers(folder: Path, encodings: Sequence[str], receipts: dict[int, Receipt]) -> None:
    """Remove what an encode that was stopped left behind without a receipt."""
    kept = {receipt.file for receipt in receipts.values()}
    for encoding in encodings:
        for path in (folder / encoding).glob("*"):
            is_record = path.match("record-*.pcr") and path.name not in kept
            if is_record or path.name.endswith(TEMPORARY_SUFFIX):
                path.unlink()


def has_receipts(folder: Path) -> bool:
    """An encode is at work, or was stopped before it had tidied up."""
    return (folder / _RECEIPTS_FOLDER).exists()


def remove_receipts(folder: Path) -> None:
    """Remove all receipts: the index has taken their place."""
    shutil.rmtree(folder / _RECEIPTS_FOLDER, ignore_errors=True)


def write_rejected(folder: Path, rejected: Sequence[Sequence[str]]) -> None:
    """Write `rejected.csv`: columns id, reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "reason"])
    writer.writerows(rejected)
    # A file name need not be UTF-8; surrogateescape gives its own bytes back.
    write_atomic(folder / REJECTED_FILE, [text.getvalue().encode(errors="surrogateescape")])


def read_rejected(folder: Path) -> list[list[str]]:
    """[id, reason] of every image that was left out."""
    data = (folder / REJECTED_FILE).read_bytes().decode(errors="surrogateescape")
    return list(csv.reader(io.StringIO(data, newline="")))[1:]


def _is_stored(folder: Path, receipt: Receipt) -> bool:
    for encoding, group_ends in receipt.group_ends.items():
        path = folder / encoding / receipt.file
        if not path.is_file() or path.stat().st_size != group_ends[-1]:
            return False
    return True
