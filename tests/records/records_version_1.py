"""Records of format version 1, written as they were before there was a version 2: by nothing of ours."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import xxhash

Record = dict[str, list[bytes]]
"""Image id -> its pieces, one for each group."""


def write_version_1(
    folder: Path,
    records: list[Record],
    labels: dict[str, dict[str, int]],
    classes: dict[str, list[str]],
    **what: Any,
) -> None:
    """`folder/index.json` and its records; `labels` are by label and image id, `what` says what they are."""
    folder.mkdir(parents=True)
    entries = []
    for number, record in enumerate(records):
        header = {
            **what,
            "num_samples": len(record),
            "ids": list(record),
            "labels": {label: [of[name] for name in record] for label, of in labels.items()},
        }
        text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
        data = struct.pack("<8sII", b"\x89PCR\r\n\x1a\n", 1, len(text))
        data += struct.pack("<Q", xxhash.xxh3_64_intdigest(data + text)) + text
        ends = []
        for group in range(what["num_groups"]):
            pieces = [pieces[group] for pieces in record.values()]
            lengths, content = struct.pack(f"<{len(pieces)}I", *map(len, pieces)), b"".join(pieces)
            data += lengths + struct.pack("<Q", xxhash.xxh3_64_intdigest(lengths + content)) + content
            ends.append(len(data))
        file = f"record-{number:06d}.pcr"
        (folder / file).write_bytes(data)
        entries.append({"file": file, "num_samples": len(record), "group_ends": ends})
    index = {**what, "classes": classes, "records": entries}
    canonical = json.dumps(index, sort_keys=True, separators=(",", ":")).encode()
    seal = xxhash.xxh3_64_hexdigest(canonical)
    outer = {"format": "pcr-exp records", "version": 1, "checksum": seal, **index}
    (folder / "index.json").write_text(json.dumps(outer, indent=1) + "\n")
