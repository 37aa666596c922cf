"""Comparing headers with the first of their encode gives the same headers and errors as full parsing."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.errors import RecordError
from pcr_exp.records import headers as known_headers
from pcr_exp.records.format import RecordHeader, pack_record
from pcr_exp.records.headers import KnownHeaders
from pcr_exp.records.index import RecordEntry, RecordIndex

CLASSES = {"kind": ["even", "odd"], "size": ["s", "m", "l"]}
FIRST = RecordHeader(
    "photos", "train", "pcr", "f00d", 2, ["a/1.jpg", "b/2.jpg"], {"kind": [0, 1], "size": [2, 0]}
)
INDEX = RecordIndex("photos", "train", "pcr", "f00d", 2, CLASSES, [])


def packed(header: RecordHeader) -> tuple[bytes, RecordEntry]:
    record = pack_record(header, [[b"x", b"y"]] * header.num_samples)
    data = b"".join(record.chunks)[: record.header_bytes]
    return data, RecordEntry("r.pcr", header.num_samples, record.group_ends, record.header_bytes)


def known() -> KnownHeaders:
    headers = KnownHeaders(INDEX)
    headers.unpack(*packed(FIRST), "the first")
    return headers


def outcome(headers: KnownHeaders, data: bytes, entry: RecordEntry) -> object:
    try:
        return headers.unpack(data, replace(entry, file="another.pcr"), "it")
    except RecordError as error:
        return str(error)


@given(st.data())
def test_the_same_header_as_when_it_is_read_in_full(data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.text() | st.sampled_from(["", '"', '","', "\\", "\x7f", "ä"]), min_size=1))
    labels = {
        name: data.draw(st.lists(st.integers(0, len(classes) - 1), min_size=len(ids), max_size=len(ids)))
        for name, classes in CLASSES.items()
    }
    header = replace(FIRST, ids=ids, labels=labels)
    encoded, entry = packed(header)
    assert known().unpack(encoded, entry, "it") == (header, len(encoded))


def test_only_the_first_is_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = known()
    monkeypatch.setattr(known_headers.layout, "unpack_header", None)
    other = replace(FIRST, ids=["c", "d\u00e4", "e"], labels={"kind": [1, 1, 1], "size": [0, 1, 2]})
    encoded, entry = packed(other)
    entry = replace(entry, file="another.pcr")
    assert headers.unpack(encoded, entry, "it")[0] == other
    assert headers.unpack(encoded, entry, "it")[0] == other, "kept"


EDITS = {
    "another fingerprint": (b'"f00d"', b'"f00e"'),
    "a class that there is not": (b'"kind":[0', b'"kind":[7'),
    "a negative class": (b'"kind":[0', b'"kind":[-1'),
    "true for a class": (b'"kind":[0', b'"kind":[true'),
    "a label too few": (b'"kind":[0,1]', b'"kind":[0]'),
    "labels of another name": (b'"kind"', b'"sort"'),
    "labels of one name twice": (b'"size":', b'"kind":'),
    "an id too few": (b'["a/1.jpg","b/2.jpg"]', b'["a/1.jpg"]'),
    "an id that is a number": (b'["a/1.jpg","b/2.jpg"]', b'["a/1.jpg",2]'),
    "ids that are no list": (b'["a/1.jpg","b/2.jpg"]', b'{"a/1.jpg":"b/2.jpg"}'),
    "ids cut open": (b'["a/1.jpg","b/2.jpg"]', b'["]'),
    "a line end in an id": (b"a/1.jpg", b"a/1\njpg"),
    "another number of samples": (b'"num_samples":2', b'"num_samples":3'),
    "a number that begins with 0": (b'"num_samples":2', b'"num_samples":02'),
    "a number with a point": (b'"num_samples":2', b'"num_samples":2.0'),
    "something behind": (b'"split":"train"}', b'"split":"train"} '),
    "a space": (b'"ids":', b'"ids": '),
    "one more key": (b',"labels"', b',"left":1,"labels"'),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_and_sealed_again_ends_as_when_it_is_read_in_full(edit: str) -> None:
    encoded, entry = packed(FIRST)
    assert EDITS[edit][0] in encoded
    text = encoded[24:].replace(*EDITS[edit], 1)
    start = encoded[:12] + struct.pack("<I", len(text))
    sealed = start + struct.pack("<Q", xxhash.xxh3_64_intdigest(start + text)) + text
    entry = replace(entry, header_bytes=len(sealed))
    assert outcome(known(), sealed, entry) == outcome(KnownHeaders(INDEX), sealed, entry)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_is_found(place: int, flip: int) -> None:
    encoded, entry = packed(FIRST)
    damaged = bytearray(encoded)
    damaged[place % len(damaged)] ^= flip
    assert isinstance(outcome(known(), bytes(damaged), entry), str)


def test_records_that_were_added_have_a_frame_of_their_own() -> None:
    headers = known()
    encoded, entry = packed(replace(FIRST, fingerprint="beef"))
    with pytest.raises(RecordError, match="does not belong to its index: fingerprint is 'beef'"):
        headers.unpack(encoded, replace(entry, file="another.pcr"), "it")
    added = replace(entry, file="another.pcr", fingerprint="beef")
    assert headers.unpack(encoded, added, "it")[0].fingerprint == "beef"
    assert json.loads(encoded[24:])["fingerprint"] == "beef"
