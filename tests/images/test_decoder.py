"""For any bytes, our JPEG decoder returns libjpeg's coefficients and pixels, or refuses."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import yaml
from decoder_oracle import (
    DENOMINATORS,
    by_libjpeg,
    prefixes,
    same_coefficients,
    same_pixels,
    turbo,
    whole,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jpeg_photos import (
    COVERED,
    KINDS,
    PHOTO,
    groups_of,
    merge_tables,
    needs_jpegtran,
    restarts,
    to_jpeg,
    widen_tables,
)

from pcr_exp.config.scan_scripts import JpegScan
from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Part, Source
from pcr_exp.images.decoded import PartlyDecodedImage
from pcr_exp.images.decoder import JpegDecoder
from pcr_exp.images.jpeg import EOI, join_pieces, split_scans
from pcr_exp.images.transcode import to_progressive

CONFIGS = Path(__file__).parents[2] / "configs"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
SUBSAMPLINGS = ("444", "422", "420", "440", "Gray")


def drawn(height: int, width: int, seed: int, contrast: float = 0.4, block_px: int = 3) -> np.ndarray:
    """RGB noise in squares of `block_px` pixels."""
    shape = (-(-height // block_px), -(-width // block_px), 3)
    noise = np.random.default_rng(seed).normal(0, contrast, shape)
    pixels = np.clip(128 + 128 * noise, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(pixels.repeat(block_px, 0).repeat(block_px, 1)[:height, :width])


def encoded(pixels: np.ndarray, subsampling: str, quality: int = 90) -> bytes:
    colours = "Gray" if subsampling == "Gray" else "RGB"
    shown = np.ascontiguousarray(pixels[..., :1] if colours == "Gray" else pixels)
    return simplejpeg.encode_jpeg(shown, quality, colours, subsampling)


@pytest.mark.parametrize("kind", COVERED)
def test_coefficients_and_pixels_are_libjpegs_at_every_scan(each: JpegDecoder, kind: str) -> None:
    for jpeg in (KINDS[kind], *prefixes(join_pieces(groups_of(kind)))):
        assert same_coefficients(each, jpeg)
        assert same_pixels(each, jpeg)
        frame, wanted = each.read_frame(jpeg), turbo().read_frame(jpeg)
        assert frame == wanted


@pytest.mark.parametrize("kind", ["444", "422", "420", "grey"])
def test_pixels_are_those_of_todays_libturbojpeg(each: JpegDecoder, kind: str) -> None:
    for jpeg, denominator in product((KINDS[kind], join_pieces(groups_of(kind))), DENOMINATORS):
        assert np.array_equal(whole(each, jpeg, denominator), whole(turbo(), jpeg, denominator))


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(SUBSAMPLINGS),
    contrast=st.sampled_from([0.0, 0.2, 1.0, 50.0]),
    block_px=st.sampled_from([1, 3, 8, 16]),
    seed=st.integers(0, 2**16),
)
def test_whatever_is_shown(
    each: JpegDecoder,
    *,
    height: int,
    width: int,
    quality: int,
    subsampling: str,
    contrast: float,
    block_px: int,
    seed: int,
) -> None:
    """Images range from flat to black and white, which quantisation and missing scans take outside 0..255."""
    jpeg = encoded(drawn(height, width, seed, contrast, block_px), subsampling, quality)
    progressive = to_progressive(jpeg)
    for denominator in DENOMINATORS:
        wanted = whole(turbo(), jpeg, denominator)
        assert np.array_equal(whole(each, jpeg, denominator), wanted)
        assert np.array_equal(whole(each, progressive, denominator), wanted)
    chosen = prefixes(progressive)
    assert same_pixels(each, chosen[seed % len(chosen)], [1 + seed % 2])


@pytest.mark.slow
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_all_small_sizes(each: JpegDecoder, subsampling: str) -> None:
    for height, width in product(range(1, 71), range(1, 71)):
        jpeg = encoded(drawn(height, width, height * 71 + width), subsampling)
        progressive = to_progressive(jpeg)
        for denominator in DENOMINATORS:
            wanted = whole(turbo(), jpeg, denominator)
            assert np.array_equal(whole(each, jpeg, denominator), wanted), (height, width)
            assert np.array_equal(whole(each, progressive, denominator), wanted), (height, width)


@pytest.mark.parametrize("kind", ["444", "422", "420", "grey"])
@given(data=st.data())
def test_every_rectangle_is_cut_from_the_whole(each: JpegDecoder, kind: str, data: st.DataObject) -> None:
    scans = prefixes(join_pieces(groups_of(kind)))
    jpeg = data.draw(st.sampled_from([KINDS[kind], scans[0], scans[1], scans[4], scans[-1]]))
    denominator = data.draw(st.sampled_from(DENOMINATORS))
    everything = whole(each, jpeg, denominator)
    height, width, _ = everything.shape
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - rows)), data.draw(st.integers(0, width - columns))
    out = np.full((rows + 2, columns + 2, 3), 77, np.uint8)
    each.decode(jpeg, denominator, top, left, rows, columns, out[1:-1, 1:-1])
    assert np.array_equal(out[1:-1, 1:-1], everything[top : top + rows, left : left + columns])
    out[1:-1, 1:-1] = 77
    assert np.all(out == 77), "nothing beside it is written"


@pytest.mark.parametrize("kind", ["444", "422", "420", "grey"])
def test_of_a_part_at_full_size_no_more_is_decoded(ours: JpegDecoder, kind: str) -> None:
    """Its pixels are therefore contiguous, and the resize filter need not copy them."""
    jpeg = KINDS[kind]
    whole = ours.decode(jpeg, 1, 0, 0, *ours.read_frame(jpeg)[:2])
    part = PartlyDecodedImage(jpeg, ours, _never).part(21, 13, 40, 50)
    assert part == Part(part.pixels, 0, 0, 40, 50, 1)
    assert np.array_equal(part.pixels, whole[21:61, 13:63])


def _never() -> Source:
    raise AssertionError("the part could have been decoded")


@pytest.mark.parametrize("rectangle", [(-1, 0, 1, 1), (0, 0, 1, 200), (151, 0, 1, 1), (0, 2**31 - 1, 1, 1)])
def test_rectangles_outside_are_refused(ours: JpegDecoder, rectangle: tuple[int, int, int, int]) -> None:
    out = np.empty((*rectangle[2:], 3), np.uint8)
    with pytest.raises(ImageError, match="left to libjpeg"):
        ours.decode(KINDS["420"], 1, *rectangle, out)


@pytest.mark.parametrize("denominator", [0, 3, 16, -1])
def test_other_fractions_are_refused(ours: JpegDecoder, denominator: int) -> None:
    with pytest.raises(ImageError, match="left to libjpeg"):
        ours.decode(KINDS["420"], denominator, 0, 0, 1, 1)


def test_places_that_do_not_fit_are_refused(ours: JpegDecoder) -> None:
    for out in (
        np.empty((3, 4, 3), np.uint8),
        np.empty((4, 4, 3), np.int8),
        np.empty((4, 8, 3), np.uint8)[:, ::2],
    ):
        with pytest.raises(ValueError, match=r"out: wanted uint8 \[4, 4, 3\]"):
            ours.decode(KINDS["420"], 1, 0, 0, 4, 4, out)
    fixed = np.empty((4, 4, 3), np.uint8)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="written"):
        ours.decode(KINDS["420"], 1, 0, 0, 4, 4, fixed)


def cut_by(scans: Sequence[JpegScan], jpeg: bytes, folder: Path) -> bytes:
    path = folder / "scans.txt"
    path.write_text("\n".join(map(str, scans)) + "\n")
    return subprocess.run(["jpegtran", "-scans", path], input=jpeg, capture_output=True, check=True).stdout


@needs_jpegtran
@pytest.mark.parametrize(
    "path", sorted((CONFIGS / "records.scans").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_script_that_is_shipped(each: JpegDecoder, path: Path, tmp_path: Path) -> None:
    fields = [{"Ah": 0, "Al": 0, **scan} for scan in yaml.safe_load(path.read_text())["scans"]]
    scans = [JpegScan(tuple(f["components"]), f["Ss"], f["Se"], f["Ah"], f["Al"]) for f in fields]
    for kind in ("444", "420"):
        for jpeg in prefixes(cut_by(scans, KINDS[kind], tmp_path)):
            assert same_coefficients(each, jpeg)
            assert same_pixels(each, jpeg, (1, 4))


@st.composite
def legal_scripts(draw: st.DrawFn) -> list[JpegScan]:
    """Any bands, each refined one bit at a time to its last bit, in any order in which DC comes first."""
    chains = []
    for components in draw(st.sampled_from([[(0, 1, 2)], [(0,), (1,), (2,)], [(0,), (1, 2)]])):
        chains.append((components, 0, 0))
    for component in range(3):
        cuts = sorted(draw(st.sets(st.integers(1, 62), max_size=2)))
        chains += [((component,), a + 1, b) for a, b in zip([0, *cuts], [*cuts, 63], strict=True)]
    lows = [draw(st.integers(0, 3)) for _ in chains]
    turns = draw(st.permutations([i for i, low in enumerate(lows) for _ in range(low + 1)]))
    scans, waiting, bits = [], list(turns), [-1] * len(chains)
    while waiting:
        known = {
            c
            for (components, first, _), bit in zip(chains, bits, strict=True)
            if not first and bit >= 0
            for c in components
        }
        turn = next(i for i in waiting if chains[i][1] == 0 or known.issuperset(chains[i][0]))
        waiting.remove(turn)
        high = max(bits[turn], 0)
        bits[turn] = bits[turn] - 1 if bits[turn] >= 0 else lows[turn]
        scans.append(JpegScan(*chains[turn], high, bits[turn]))
    return scans


@needs_jpegtran
@settings(max_examples=60)
@given(scans=legal_scripts(), kind=st.sampled_from(["444", "422", "420"]), seed=st.integers(0, 99))
def test_every_legal_script(
    each: JpegDecoder,
    scans: list[JpegScan],
    kind: str,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    jpeg = encoded(drawn(40, 57, seed), kind, quality=95)
    found = prefixes(cut_by(scans, jpeg, tmp_path_factory.mktemp("scans")))
    assert same_coefficients(each, found[-1])
    assert same_coefficients(each, found[seed % len(found)])
    assert np.array_equal(whole(each, found[-1]), whole(each, jpeg))


def flat(height: int, width: int) -> bytes:
    """The longest possible runs of blocks without coefficients, and one block that ends them."""
    pixels = np.full((height, width, 1), 90, np.uint8)
    pixels[-8:, -8:, 0] = np.random.default_rng(0).integers(0, 255, (8, 8))
    return to_progressive(simplejpeg.encode_jpeg(pixels, 90, "Gray", "Gray"))


def large_quantisers() -> bytes:
    jpeg = bytearray(widen_tables(KINDS["420"]))
    first = jpeg.index(b"\xff\xdb") + 5
    for i in range(3, 64, 7):
        jpeg[first + 2 * i] = 1  # adds 256
    return bytes(jpeg)


def with_fill_bytes(jpeg: bytes) -> bytes:
    pieces = split_scans(jpeg)
    return (
        b"\xff\xff".join(piece.replace(b"\xff\xdb", b"\xff\xff\xff\xdb", 1) for piece in pieces)
        + b"\xff"
        + EOI
    )


NOISE = to_jpeg(PHOTO, quality=100, subsampling=0, optimize=False)
UNUSUAL: dict[str, Callable[[], bytes]] = {
    "long codes": lambda: NOISE,  # the tables of T.81 K.3 have codes of 16 bits
    "long codes, progressive": lambda: to_progressive(NOISE),
    "one table segment": lambda: merge_tables(KINDS["420"]),
    "wide quantisers": lambda: widen_tables(join_pieces(groups_of("420"))),
    "large quantisers": large_quantisers,
    "large quantisers, progressive": lambda: to_progressive(large_quantisers()),
    "restarts by rows": lambda: restarts(rows=1, progressive=False),
    "restarts by blocks": lambda: restarts(blocks=3, progressive=False, subsampling=1),
    "restarts, progressive": lambda: restarts(rows=1, progressive=True),
    "restarts of every block, progressive": lambda: restarts(blocks=1, progressive=True),
    "restarts of 7 blocks, progressive": lambda: restarts(blocks=7, progressive=True, subsampling=0),
    "longest runs": lambda: flat(8 * 200, 8 * 170),
    "runs of several rows": lambda: flat(8 * 20, 8 * 37),
    "fill bytes": lambda: with_fill_bytes(join_pieces(groups_of("420"))),
    "fill bytes, sequential": lambda: with_fill_bytes(KINDS["420"]),
    "bytes behind the end": lambda: KINDS["420"] + b"\xff\xd8 more",
    "a comment and others' segments": lambda: (
        KINDS["420"][:2] + b"\xff\xfe\x00\x04hi\xff\xe5\x00\x02" + KINDS["420"][2:]
    ),
    "very wide": lambda: encoded(drawn(9, 5000, 0), "420"),
    "very high": lambda: encoded(drawn(5000, 9, 0), "420"),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_files_that_are_rare(each: JpegDecoder, what: str) -> None:
    jpeg = UNUSUAL[what]()
    assert same_coefficients(each, jpeg)
    assert same_pixels(each, jpeg, (1, 2, 8))
    if len(split_scans(jpeg.removesuffix(b"\xff\xd8 more"))) > 1:
        for prefix in prefixes(jpeg):
            assert same_coefficients(each, prefix)


def test_pieces_need_not_be_joined(ours: JpegDecoder) -> None:
    pieces = [*groups_of("420")[:7], EOI]
    joined = b"".join(pieces)
    assert ours.read_layout(pieces) == ours.read_layout(joined)
    shape = whole(ours, joined).shape[:2]
    assert np.array_equal(ours.decode(pieces, 1, 0, 0, *shape), whole(ours, joined))
    views = [memoryview(bytearray(piece)) for piece in pieces]
    assert np.array_equal(ours.decode(views, 1, 0, 0, *shape), whole(ours, joined))
    with pytest.raises(ImageError, match="left to libjpeg"):
        ours.decode([joined[:1000], joined[1000:]], 1, 0, 0, *shape)


def test_threads_do_not_meet(each: JpegDecoder) -> None:
    """A thousand decodes in sixteen threads give the same pixels as in one thread."""
    jpegs = [
        KINDS["420"],
        *prefixes(join_pieces(groups_of("420"))),
        *prefixes(join_pieces(groups_of("grey"))),
    ]
    wanted = [whole(each, jpeg) for jpeg in jpegs]
    with ThreadPoolExecutor(16) as threads:
        found = threads.map(lambda i: whole(each, jpegs[i % len(jpegs)]), range(1000))
        assert all(np.array_equal(pixels, wanted[i % len(jpegs)]) for i, pixels in enumerate(found))


DAMAGED = [KINDS["420"], restarts(rows=1, progressive=False), restarts(blocks=9, progressive=True)]
DAMAGED += [
    join_pieces(groups_of(kind)[:group]) for kind, group in product(("420", "grey"), (1, 2, 5, 7, 10))
]


@settings(max_examples=300)
@given(data=st.data())
def test_damaged_files_have_libjpegs_pixels_or_none(each: JpegDecoder, data: st.DataObject) -> None:
    """It may refuse what libjpeg accepts, but what it accepts libjpeg decodes alike and without warnings."""
    jpeg = bytearray(data.draw(st.sampled_from(DAMAGED)))
    for _ in range(data.draw(st.integers(1, 3))):
        jpeg[data.draw(st.integers(0, len(jpeg) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del jpeg[data.draw(st.integers(0, len(jpeg) - 1)) :]
    damaged = bytes(jpeg)
    try:
        frame = each.read_frame(damaged)
        if frame.height_px * frame.width_px > 2**22:
            return
        found = whole(each, damaged)
    except ImageError:
        return
    wanted = by_libjpeg(damaged, found.shape)
    assert wanted is not None and np.array_equal(found, wanted)


@pytest.mark.skipif(not SHARED.exists(), reason="real photographs are not in ../shared/data")
def test_real_photographs_look_the_same(ours: JpegDecoder) -> None:
    files = sorted(SHARED.glob("imagenet_native_sample/*/*.JPEG"))[::40]
    num_decoded = 0
    for file in files:
        original = file.read_bytes()
        if original[:3] == b"\xff\xd8\xff":
            scans = prefixes(to_progressive(original))
            for jpeg in (original, scans[0], scans[1], scans[4], scans[-1]):
                try:
                    found = whole(ours, jpeg)
                except ImageError:
                    continue
                wanted = by_libjpeg(jpeg, found.shape)
                assert wanted is not None and np.array_equal(found, wanted), file.name
                num_decoded += 1
    assert num_decoded > 4.5 * len(files)


def test_a_file_object_is_as_good(ours: JpegDecoder) -> None:
    buffer = io.BytesIO(KINDS["420"])
    assert np.array_equal(whole(ours, buffer.getbuffer()), whole(ours, KINDS["420"]))
