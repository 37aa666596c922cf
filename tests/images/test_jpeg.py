"""Splitting a JPEG file into its scans and joining them again."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from records_pictures import CASES, EOI, PLAIN, exif, photo, to_jpeg

from pcr_exp.errors import ImageError
from pcr_exp.images.jpeg import (
    group_pieces,
    join_pieces,
    read_frame,
    read_header,
    read_orientation,
    split_scans,
)

PROGRESSIVE = CASES["progressive"]


@pytest.mark.parametrize("name", CASES)
def test_header_agrees_with_pillow(name: str) -> None:
    header = read_header(CASES[name])
    image = Image.open(io.BytesIO(CASES[name]))
    assert (header.width_px, header.height_px) == image.size
    assert header.num_components == len(image.getbands())
    assert header.is_progressive == bool(image.info.get("progressive"))
    assert header.num_scans == (10 if header.is_progressive else 1)


@pytest.mark.parametrize("name", CASES)
def test_pieces_joined_are_the_file(name: str) -> None:
    assert join_pieces(split_scans(CASES[name])) == CASES[name]


def test_each_piece_ends_in_one_scan_and_brings_its_tables() -> None:
    pieces = split_scans(PROGRESSIVE)
    assert len(pieces) == 10
    assert pieces[0].startswith(b"\xff\xd8")
    for piece in pieces[1:]:
        assert piece[:2] in (b"\xff\xc4", b"\xff\xda")
        assert piece.count(b"\xff\xda") == 1
    assert not any(EOI in piece for piece in pieces)


def test_an_exif_thumbnail_is_not_taken_for_the_image() -> None:
    jpeg = CASES["exif_thumbnail"]
    assert jpeg.count(b"\xff\xda") == 2
    assert read_header(jpeg)[:2] == (176, 144)
    assert len(split_scans(jpeg)) == 1


def segment(code: int, payload: bytes) -> bytes:
    return bytes((0xFF, code)) + (len(payload) + 2).to_bytes(2, "big") + payload


@st.composite
def synthetic_files(draw: st.DrawFn) -> tuple[bytes, int]:
    """Segments and scans with fill bytes, stuffed FFs and restart markers, and the number of scans."""
    entropy_unit = st.one_of(
        st.integers(0, 254).map(lambda byte: bytes((byte,))),
        st.just(b"\xff\x00"),
        st.integers(0xD0, 0xD7).map(lambda byte: bytes((0xFF, byte))),
    )
    entropy = st.lists(entropy_unit, max_size=30).map(b"".join)
    tables = st.lists(
        st.builds(segment, st.sampled_from([0xC4, 0xDB, 0xDD, 0xE1, 0xFE]), st.binary(max_size=30)),
        max_size=3,
    ).map(b"".join)
    fill = st.integers(0, 3).map(lambda n: b"\xff" * n)
    num_scans = draw(st.integers(1, 12))
    parts = [b"\xff\xd8"]
    for _ in range(num_scans):
        parts += [
            draw(fill),
            draw(tables),
            draw(fill),
            segment(0xDA, draw(st.binary(max_size=8))),
            draw(entropy),
        ]
    parts += [draw(tables), draw(fill), EOI]
    return b"".join(parts), num_scans


@given(synthetic_files())
def test_split_and_join_is_the_identity(file_and_scans: tuple[bytes, int]) -> None:
    jpeg, num_scans = file_and_scans
    pieces = split_scans(jpeg)
    assert len(pieces) == num_scans
    joined = join_pieces(pieces)
    assert joined == jpeg


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=25), st.integers(1, 12))
def test_grouping_keeps_every_byte_in_order(pieces: list[bytes], num_groups: int) -> None:
    groups = group_pieces(pieces, num_groups)
    assert len(groups) == num_groups
    assert b"".join(groups) == b"".join(pieces)
    for i in range(min(num_groups - 1, len(pieces))):
        assert groups[i] == pieces[i]


@given(st.data())
def test_damage_is_refused_or_harmless_to_the_walk(data: st.DataObject) -> None:
    jpeg = bytearray(PROGRESSIVE)
    for _ in range(data.draw(st.integers(1, 3))):
        jpeg[data.draw(st.integers(0, len(jpeg) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(jpeg[: data.draw(st.integers(0, len(jpeg)))]) if data.draw(st.booleans()) else bytes(jpeg)
    try:
        pieces = split_scans(damaged)
    except ImageError:
        return
    assert join_pieces(pieces) == damaged


@pytest.mark.parametrize(
    ("jpeg", "reason"),
    [
        (b"", "not a JPEG"),
        (b"\xff\xd8", "without an end-of-image marker"),
        (b"\xff\xd8\xff\xff", "without an end-of-image marker"),
        (b"\xff\xd8hello", "wanted a marker at byte 2, found 68"),
        (b"\xff\xd8\xff\xd0\xff\xd9", "marker FF D0 at byte 2 is not allowed there"),
        (b"\xff\xd8\xff\xe0\x00\x01", "gives its length as 1"),
        (b"\xff\xd8\xff\xe0\x00\x09abc", "the file ends inside the segment of marker FF E0"),
        (b"\xff\xd8\xff\xe0", "the file ends inside the segment of marker FF E0"),
        (b"\xff\xd8" + segment(0xDA, b"") + b"entropy", "the file ends inside a scan"),
        (b"\xff\xd8\xff\xd9", "holds no scan"),
        (PLAIN + b"tail", "4 bytes after the end-of-image marker"),
    ],
)
def test_malformed_files_are_refused_with_the_reason(jpeg: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        split_scans(jpeg)


@pytest.mark.parametrize("first", [0xDA, 0xC0])
def test_a_frame_header_must_come_whole_and_first(first: int) -> None:
    with pytest.raises(ImageError, match="frame header"):
        read_frame(b"\xff\xd8" + segment(first, b"\x08\x00") + EOI)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value", range(1, 9))
def test_orientation_agrees_with_pillow(order: str, value: int) -> None:
    jpeg = to_jpeg(photo(16, 8), exif=exif(value, order=order))
    assert read_orientation(jpeg) == Image.open(io.BytesIO(jpeg)).getexif()[0x0112] == value


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"Exif\x00\x00",
        b"Exif\x00\x00XX",
        exif(9),
        exif(0),
        exif(6)[:12],
        exif(6)[:18],
        b"http://ns.adobe.com/xap/",
    ],
)
def test_missing_or_damaged_exif_means_upright(content: bytes) -> None:
    assert read_orientation(b"\xff\xd8" + segment(0xE1, content) + segment(0xDA, b"") + EOI) == 1


def test_exif_is_looked_for_before_the_first_scan_only() -> None:
    late = b"\xff\xd8" + segment(0xDA, b"") + segment(0xE1, exif(6)) + EOI
    assert read_orientation(late) == 1
    assert read_orientation(b"\xff\xd8" + EOI) == 1
