"""Writes the PCR paper's released format: protobuf written by hand, and an SQLite index of pickled values."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path


def varint(value: int) -> bytes:
    """Encode a protobuf varint: seven bits per byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def record_parts(labels: Sequence[int], images: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return metadata and scan groups of images given as pieces; images with fewer pieces get empty ones."""
    num_groups = max(map(len, images))
    meta = b"".join(b"\x08" + varint(label) for label in labels) + b"\x10" + varint(num_groups)
    padded = [[*pieces, *[b""] * (num_groups - len(pieces))] for pieces in images]
    groups = [
        b"".join(b"\x0a" + varint(len(pieces[group])) + pieces[group] for pieces in padded)
        for group in range(num_groups)
    ]
    return [meta, *groups]


def write_index(folder: Path, values: Mapping[object, object]) -> Path:
    """Write PCR.db; a value that is not bytes is pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "PCR.db"
    with closing(sqlite3.connect(path)) as index, index:
        index.execute('CREATE TABLE "unnamed" (key TEXT PRIMARY KEY, value BLOB)')
        for key, value in values.items():
            stored = value if isinstance(value, bytes) else pickle.dumps(value, protocol=5)
            index.execute("INSERT INTO unnamed VALUES (?, ?)", (key, stored))
    return path


def write_release(folder: Path, records: Sequence[tuple[Sequence[int], Sequence[Sequence[bytes]]]]) -> None:
    """Write PCR.db, and PCR_<i>.pcr from the (labels, images) of each record."""
    values: dict[object, object] = {"m_dataset_size": 1000, "m_batch_size": 128}
    folder.mkdir(parents=True, exist_ok=True)
    for number, (labels, images) in enumerate(records):
        parts = record_parts(labels, images)
        (folder / f"PCR_{number}.pcr").write_bytes(b"".join(parts))
        values[f"PCR_{number}.pcr"] = [len(part) for part in parts]
    write_index(folder, values)
