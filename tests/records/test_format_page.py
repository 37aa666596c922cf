"""FORMAT.md suffices to read a record: `read_record` follows the page and uses none of our code."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import xxhash

from pcr_exp.records import format as own_format
from pcr_exp.records.index import parse_index
from pcr_exp.records.index_table import dump_table
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

PAGE = (Path(__file__).parents[2] / "pcr_exp/records/FORMAT.md").read_text()


def read_record(data: bytes) -> tuple[dict[str, Any], list[list[bytes]], int, list[int]]:
    """Return the header, pieces by group and sample, the header's end, and the end of every group."""
    assert data[:8] == bytes.fromhex(re.search(r"`((?:[0-9A-F]{2} ){7}[0-9A-F]{2})`", PAGE)[1])
    version, length = struct.unpack_from("<II", data, 8)
    assert version == int(re.search(r"format version: (\d+)", PAGE)[1])
    (stated,) = struct.unpack_from("<Q", data, 16)
    assert stated == xxhash.xxh3_64_intdigest(data[:16] + data[24 : 24 + length])
    header = json.loads(data[24 : 24 + length])
    num, end, groups, ends = header["num_samples"], 24 + length, [], []
    for _ in range(header["num_groups"]):
        start = end
        lengths = struct.unpack_from(f"<{num}I", data, start)
        checksums = struct.unpack_from(f"<{num}Q", data, start + 4 * num)
        (stated,) = struct.unpack_from("<Q", data, start + 12 * num)
        end = first = start + 12 * num + 8
        pieces = []
        for size in lengths:
            pieces.append(data[end : end + size])
            end += size
        assert [xxhash.xxh3_64_intdigest(piece) for piece in pieces] == list(checksums)
        assert stated == xxhash.xxh3_64_intdigest(data[start : start + 12 * num] + data[first:end])
        groups.append(pieces)
        ends.append(end)
    assert end == len(data)
    return header, groups, 24 + length, ends


@pytest.mark.parametrize("encoding", ["pcr", "baseline"])
def test_a_reader_of_the_page_finds_the_same(split: Path, encoding: str) -> None:
    index = json.loads((split / encoding / "index.json").read_text())
    records = RecordSet(LocalStorage(split), encoding)
    for number, entry in enumerate(index["records"]):
        header, groups, header_bytes, ends = read_record((split / encoding / entry["file"]).read_bytes())
        assert (header_bytes, ends) == (entry["header_bytes"], entry["group_ends"])
        assert header["num_samples"] == entry["num_samples"]
        for field in ("dataset", "split", "encoding", "images", "fingerprint", "scans", "num_groups"):
            assert header[field] == index[field]
        prefix = records.read_prefix(number, index["num_groups"])
        assert prefix.ids == header["ids"]
        assert {name: values.tolist() for name, values in prefix.labels.items()} == header["labels"]
        end = b"\xff\xd9" if header["scans"] == "libjpeg-default" else b""
        for i in range(len(prefix)):
            for group in range(1, index["num_groups"] + 1):
                assert prefix.encoded(i, group) == b"".join(part[i] for part in groups[:group]) + end
            if encoding == "baseline":
                assert groups[0][i] == (split.parent / header["ids"][i]).read_bytes()


def test_the_index_s_checksum_is_what_the_page_says(split: Path) -> None:
    index = json.loads((split / "pcr/index.json").read_text())
    assert (index.pop("format"), index.pop("version")) == ("pcr-exp records", 2)
    stated = index.pop("checksum")
    text = json.dumps(index, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert stated == f"{xxhash.xxh3_64_intdigest(text.encode()):016x}"


def test_the_page_has_every_field_and_limit(split: Path) -> None:
    header, *_ = read_record((split / "pcr/record-000000.pcr").read_bytes())
    index = json.loads((split / "pcr/index.json").read_text())
    fields = {*header, *index, *index["records"][0]}
    assert {field for field in fields if f"`{field}`" not in PAGE} == set()
    assert f"{xxhash.xxh3_64_intdigest(b''):016X}" in PAGE
    assert (own_format.MAX_SAMPLES, own_format.MAX_GROUPS, own_format.VERSION) == (2**20, 64, 2)
    assert own_format.MINOR == 0


def test_the_table_of_an_index_is_what_the_page_says(split: Path) -> None:
    data = (split / "pcr/index.json").read_bytes()
    table = dump_table(parse_index(data, "it"), data)
    assert table[:8] == bytes.fromhex(re.search(r"`((?:[0-9A-F]{2} ){7}[0-9A-F]{2})` \(`\\x89PCT", PAGE)[1])
    version, head_bytes, num_bytes, start, num_rows, f, p = struct.unpack_from("<IIQQQII", table, 8)
    assert (version, num_bytes, start) == (2, len(data), xxhash.xxh3_64_intdigest(data[:4096]))
    assert struct.unpack_from("<Q", table, 48) == (xxhash.xxh3_64_intdigest(table[:48] + table[56:]),)
    index, head = json.loads(data), json.loads(table[56 : 56 + head_bytes])
    assert head | {"records": index["records"], "checksum": index["checksum"]} == index
    row = struct.Struct(f"<{f}sIQ{head['num_groups']}Q{p}s")
    found = list(row.iter_unpack(table[56 + head_bytes :]))
    assert len(found) == num_rows == len(index["records"])
    for (file, num_samples, header_bytes, *ends, fingerprint), entry in zip(
        found, index["records"], strict=True
    ):
        assert file.rstrip(b"\0").decode() == entry["file"] and fingerprint == bytes(p)
        assert (num_samples, header_bytes, ends) == (
            entry["num_samples"],
            entry["header_bytes"],
            entry["group_ends"],
        )
