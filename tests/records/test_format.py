"""Records round-trip, and damage to their bytes is detected."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from records_storage import MemoryStorage

from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.errors import RecordError
from pcr_exp.records.format import PackedRecord, RecordHeader, pack_record, unpack_header
from pcr_exp.records.groups import unpack_group
from pcr_exp.records.index import RecordEntry, RecordIndex, dump_index, parse_index
from pcr_exp.records.reader import RecordSet

Contents = tuple[RecordHeader, list[list[bytes]]]


@st.composite
def records(draw: st.DrawFn) -> Contents:
    """Any header and pieces. IDs are any text, including lone surrogates (undecodable file names)."""
    num_samples, num_groups = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    label_values = st.lists(st.integers(0, 1), min_size=num_samples, max_size=num_samples)
    any_text = st.text(st.characters(exclude_categories=()), max_size=8)
    encoding = draw(st.sampled_from(["pcr", "baseline"]))
    header = RecordHeader(
        dataset=draw(any_text),
        split=draw(any_text),
        encoding=encoding,
        scans=SCANS[encoding],
        fingerprint=draw(st.text("0123456789abcdef", max_size=16)),
        num_groups=num_groups,
        ids=draw(st.lists(any_text, min_size=num_samples, max_size=num_samples)),
        labels=draw(st.dictionaries(any_text, label_values, max_size=3)),
    )
    pieces = st.lists(st.binary(max_size=20), min_size=num_groups, max_size=num_groups)
    return header, draw(st.lists(pieces, min_size=num_samples, max_size=num_samples))


def small() -> Contents:
    header = RecordHeader("d", "train", "pcr", "f00d", 3, ["a", "b"], {"kind": [1, 0]})
    return header, [[b"a1", b"", b"a3"], [b"b1b1", b"b2", b""]]


def write(header: RecordHeader, samples: list[list[bytes]]) -> dict[str, bytes]:
    """Return the files of a set with one record."""
    packed = pack_record(header, samples)
    classes = {label: ["x", "y"] for label in header.labels}
    entry = RecordEntry("record-000000.pcr", header.num_samples, packed.group_ends, packed.header_bytes)
    index = RecordIndex(
        dataset=header.dataset,
        split=header.split,
        encoding=header.encoding,
        fingerprint=header.fingerprint,
        num_groups=header.num_groups,
        classes=classes,
        records=[entry],
        scans=header.scans,
    )
    return {"s/index.json": dump_index(index), "s/record-000000.pcr": b"".join(packed.chunks)}


@settings(deadline=None)  # the machine may be busy
@given(records())
def test_round_trip_at_every_group(contents: Contents) -> None:
    header, samples = contents
    record_set = RecordSet(MemoryStorage(write(header, samples)), "s")
    ending = b"" if header.encoding == "baseline" else b"\xff\xd9"
    for group in range(1, header.num_groups + 1):
        prefix = record_set.read_prefix(0, group)
        assert prefix.ids == header.ids
        assert {name: values.tolist() for name, values in prefix.labels.items()} == header.labels
        assert all(values.dtype == "int64" for values in prefix.labels.values())
        assert (len(prefix), prefix.group) == (len(samples), group)
        for i, pieces in enumerate(samples):
            assert prefix.encoded(i) == b"".join(pieces[:group]) + ending


@given(records())
def test_the_layout_is_as_written_down(contents: Contents) -> None:
    header, samples = contents
    packed = pack_record(header, samples)
    data = b"".join(packed.chunks)
    magic, version, length, checksum = struct.unpack_from("<8sIIQ", data)
    assert (magic, version) == (b"\x89PCR\r\n\x1a\n", 2)
    assert checksum == xxhash.xxh3_64_intdigest(data[:16] + data[24 : 24 + length])
    assert json.loads(data[24 : 24 + length])["ids"] == header.ids
    position = packed.header_bytes
    assert position == 24 + length
    for group, end in enumerate(packed.group_ends):
        lengths = struct.unpack_from(f"<{len(samples)}I", data, position)
        assert list(lengths) == [len(pieces[group]) for pieces in samples]
        *checksums, checksum = struct.unpack_from(f"<{len(samples) + 1}Q", data, position + 4 * len(samples))
        assert checksums == [xxhash.xxh3_64_intdigest(pieces[group]) for pieces in samples]
        table, content = (
            data[position : position + 12 * len(samples)],
            data[position + 12 * len(samples) + 8 : end],
        )
        assert content == b"".join(pieces[group] for pieces in samples)
        assert checksum == xxhash.xxh3_64_intdigest(table + content)
        position = end
    assert position == len(data)


@given(records(), st.data())
def test_any_changed_byte_is_noticed_and_named(contents: Contents, data: st.DataObject) -> None:
    header, samples = contents
    files = write(header, samples)
    record = bytearray(files["s/record-000000.pcr"])
    position = data.draw(st.integers(0, len(record) - 1))
    record[position] ^= data.draw(st.integers(1, 255))
    files["s/record-000000.pcr"] = bytes(record)
    record_set = RecordSet(MemoryStorage(files), "s")
    ends = record_set.index.records[0].group_ends
    first = pack_record(header, samples).header_bytes
    with pytest.raises(RecordError, match=r"record s/record-000000\.pcr") as raised:
        record_set.read_prefix(0, header.num_groups)
    if position >= first:
        group = next(number for number, end in enumerate(ends, start=1) if position < end)
        assert f"group {group} of" in str(raised.value)
        assert "damaged" in str(raised.value)
        if group > 1:
            assert len(record_set.read_prefix(0, group - 1)) == len(samples)


@given(records(), st.data())
def test_a_record_cut_short_is_noticed(contents: Contents, data: st.DataObject) -> None:
    header, samples = contents
    files = write(header, samples)
    record = files["s/record-000000.pcr"]
    files["s/record-000000.pcr"] = record[: data.draw(st.integers(0, len(record) - 1))]
    with pytest.raises(RecordError, match=r"record s/record-000000\.pcr is cut short"):
        RecordSet(MemoryStorage(files), "s").read_prefix(0, header.num_groups)


def reseal(text: bytes, version: int = 2) -> bytes:
    preamble = struct.pack("<8sII", b"\x89PCR\r\n\x1a\n", version, len(text))
    return preamble + struct.pack("<Q", xxhash.xxh3_64_intdigest(preamble + text)) + text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 a zip file", "is not a PCR record"),
        (b"", "cut short in its header, after 0 bytes"),
        (b"\x89PCR\r\n\x1a\n\x01", "cut short in its header, after 9 bytes"),
        (reseal(b"{}")[:-1], "cut short or damaged in its header: 25 of 26 bytes"),
        (
            reseal(b"{}", version=3),
            r"format version 3, this program reads version 2\. Use the pcr-exp that",
        ),
        (reseal(b"{}", version=1), "format version 1, this program reads version 2"),
        (reseal(b"{}")[:-1] + b"]", "damaged in its header: the checksum does not match"),
        (reseal(b"{}"), "has a header that cannot be used: dataset is missing"),
        (
            reseal(b"[1]"),
            r"has a header that cannot be used: it is \[1\], wanted an object with named fields",
        ),
        (reseal(b"not json"), "has a header that cannot be used: it is not JSON"),
    ],
)
def test_headers_that_cannot_be_used(data: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=f"^here .*{message}"):
        unpack_header(data, "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": ["a"]}, "ids has 1 entries, wanted 2 \\(num_samples\\)"),
        ({"labels": {"kind": [1]}}, "kind has 1 entries, wanted 2 \\(num_samples\\)"),
        ({"labels": {"kind": [1, -1]}}, r"labels\['kind'\]\[1\] is -1, wanted a whole number from 0 to"),
        ({"labels": {"kind": [1, True]}}, r"labels\['kind'\]\[1\] is True, wanted"),
        ({"labels": [1, 0]}, r"labels is \[1, 0\], wanted an object"),
        ({"ids": ["a", 5]}, r"ids\[1\] is 5, wanted text"),
        ({"num_samples": -32}, "num_samples is -32, wanted a whole number from 1"),
        ({"num_groups": 1e3}, "num_groups is 1000.0, wanted a whole number"),
        ({"encoding": "zip"}, "encoding is 'zip', wanted baseline or pcr"),
        ({"scans": "../x"}, r"scans is '\.\./x', wanted a bare name"),
        ({"colour": 2}, "'colour' is not an allowed key"),
    ],
)
def test_every_field_of_a_header_is_checked(change: dict[str, object], message: str) -> None:
    header, samples = small()
    text = json.dumps(json.loads(pack_record(header, samples).chunks[2]) | change).encode()
    with pytest.raises(RecordError, match=f"^here has a header that cannot be used: {message}"):
        unpack_header(reseal(text), "here")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"kind": [1, 2]}, "a label of 'kind' is 2, the index has 2 classes for it"),
        ({"colour": [0, 0]}, r"labels is \['colour'\], the index says \['kind'\]"),
    ],
)
def test_labels_must_be_of_the_classes(labels: dict[str, list[int]], message: str) -> None:
    header, samples = small()
    files = write(header, samples)
    other = pack_record(replace(header, labels=labels), samples)
    files["s/record-000000.pcr"] = b"".join(other.chunks)
    with pytest.raises(RecordError, match=rf"\.pcr does not belong to its index: {message}"):
        reseated(files, other).read_prefix(0, 3)


def reseated(files: dict[str, bytes], packed: PackedRecord) -> RecordSet:
    """Return the set with the offsets of another record in its index."""
    index = parse_index(files["s/index.json"], "it")
    entry = replace(index.records[0], group_ends=packed.group_ends, header_bytes=packed.header_bytes)
    return RecordSet(
        MemoryStorage(files | {"s/index.json": dump_index(replace(index, records=[entry]))}), "s"
    )


def test_a_group_whose_place_is_wrong() -> None:
    with pytest.raises(RecordError, match=r"^group 1 of x does not fit: .* at bytes 0 to 9 of 50"):
        unpack_group(bytes(50), 0, 9, 2, "group 1 of x")
    with pytest.raises(RecordError, match="does not fit"):
        unpack_group(bytes(50), 18, 51, 2, "group 1 of x")


def test_a_group_whose_lengths_and_place_disagree() -> None:
    lengths, content = struct.pack("<2I2Q", 3, 3, 0, 0), b"abcdefg"
    block = lengths + struct.pack("<Q", xxhash.xxh3_64_intdigest(lengths + content)) + content
    with pytest.raises(RecordError, match=r"^group 1 of x is damaged: its pieces end at byte 38, wanted 39"):
        unpack_group(block, 0, len(block), 2, "group 1 of x")


def test_a_sample_that_is_not_there() -> None:
    prefix = RecordSet(MemoryStorage(write(*small())), "s").read_prefix(0, 3)
    for i in (-1, 2):
        with pytest.raises(IndexError, match=f"sample {i} is out of range for a record of 2"):
            prefix.encoded(i)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "e"}, "dataset is 'e', the index says 'd'"),
        ({"split": "val"}, "split is 'val', the index says 'train'"),
        ({"encoding": "baseline"}, "encoding is 'baseline', the index says 'pcr'"),
        ({"fingerprint": "beef"}, "fingerprint is 'beef', the index says 'f00d'"),
        ({"scans": "mine"}, "scans is 'mine', the index says 'none'"),
    ],
)
def test_a_record_of_another_encode_is_refused(change: dict[str, str], message: str) -> None:
    header, samples = small()
    files = write(header, samples)
    other = b"".join(pack_record(replace(header, **change), samples).chunks)
    files["s/record-000000.pcr"] = other + bytes(20)
    with pytest.raises(RecordError, match=rf"\.pcr does not belong to its index: {message}.*again"):
        RecordSet(MemoryStorage(files), "s").read_prefix(0, 3)


def test_counts_that_differ_from_the_index_are_refused() -> None:
    header, samples = small()
    files = write(header, samples)
    more = replace(header, ids=["a", "b", "c"], labels={"kind": [0, 0, 0]})
    files["s/record-000000.pcr"] = b"".join(pack_record(more, [*samples, samples[0]]).chunks)
    with pytest.raises(RecordError, match="number of samples is 3, the index says 2"):
        RecordSet(MemoryStorage(files), "s").read_prefix(0, 1)
    files["s/record-000000.pcr"] = b"".join(
        pack_record(replace(header, num_groups=4), [[*pieces, b"more"] for pieces in samples]).chunks
    )
    with pytest.raises(RecordError, match="number of groups is 4, the index says 3"):
        RecordSet(MemoryStorage(files), "s").read_prefix(0, 1)


def test_group_ends_that_differ_from_the_record_are_refused() -> None:
    header, samples = small()
    files = write(header, samples)
    index = json.loads(files["s/index.json"])
    ends = index["records"][0]["group_ends"]
    moved = PackedRecord([], index["records"][0]["header_bytes"], (ends[0], ends[1] - 1, ends[2]))
    record_set = reseated(files, moved)
    assert len(record_set.read_prefix(0, 1)) == 2
    with pytest.raises(RecordError, match=r"group 2 of record s/record-000000\.pcr is damaged"):
        record_set.read_prefix(0, 2)
