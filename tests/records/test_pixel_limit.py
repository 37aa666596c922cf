"""The same limits on pixels and scans apply wherever an image is encoded or decoded."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from records_encoding import encode, write_images
from records_pictures import CASES, PLAIN, photo, to_jpeg
from records_storage import FolderStorage

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import DECODE_MODES, LoaderConfig, StorageConfig
from pcr_exp.config.records import MAX_PIXELS, RecordsConfig
from pcr_exp.errors import ConfigError, ImageError, RecordError
from pcr_exp.images.decode import decode, open_decoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.transcode import to_progressive
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.one_record import load_image
from pcr_exp.records.reader import RecordSet

BYTES_OF_SIZE = 4
"""Bytes of height and width in the frame header, two each."""


def claiming(jpeg: bytes, width: int, height: int) -> bytes:
    """Return the file with another size in its frame header."""
    for marker in (b"\xff\xc0", b"\xff\xc2"):
        at = jpeg.find(marker)
        if at >= 0:
            size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
            return jpeg[: at + 5] + size + jpeg[at + 5 + BYTES_OF_SIZE :]
    raise AssertionError


LARGE = "16384 x 47619 pixels are more than max_pixels=120000000"


@pytest.mark.parametrize("kind", ["420", "grey", "cmyk", "progressive"])
def test_a_small_file_that_claims_to_be_large_is_not_decoded(kind: str) -> None:
    jpeg = claiming(CASES[kind], 16384, 47619)
    started = time.process_time()
    with pytest.raises(RecordError, match=f"^sample 7 cannot be decoded: {LARGE}.* raise max_pixels"):
        decode(jpeg, "sample 7")
    for mode in DECODE_MODES:
        for encoding in ("pcr", "baseline"):
            for group in (1, 2, 5, 10):
                with pytest.raises(RecordError, match=LARGE):
                    open_decoder(mode, encoding)(jpeg, group, "sample 7").part(0, 0, 10, 10)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("kind", ["420", "cmyk"])
def test_it_is_not_encoded_either(kind: str, tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", {"a": PLAIN, "large": claiming(CASES[kind], 16384, 47619)})
    started = time.process_time()
    encode(samples, tmp_path / "out", on_error="skip")
    assert time.process_time() - started < 5
    assert (tmp_path / "out/rejected.csv").read_text().splitlines()[1:] == [f"large.jpg,{LARGE}"]


@pytest.mark.parametrize("kind", ["420", "grey", "cmyk", "progressive"])
def test_the_same_number_decides_at_both_ends(kind: str, tmp_path: Path) -> None:
    num_pixels = 176 * 144
    jpeg = CASES[kind]
    (tmp_path / "a.jpg").write_bytes(jpeg)
    stored = load_image(tmp_path / "a.jpg", len(jpeg), num_pixels)
    for group in (1, 10):
        prefix = join_pieces(stored.groups[:group])
        assert decode(prefix, max_pixels=num_pixels).shape == (144, 176, 3)
        with pytest.raises(RecordError, match=r"176 x 144 pixels are more than max_pixels=25343"):
            decode(prefix, max_pixels=num_pixels - 1)
    with pytest.raises(ImageError, match=r"^176 x 144 pixels are more than max_pixels=25343$"):
        load_image(tmp_path / "a.jpg", len(jpeg), num_pixels - 1)


def test_a_second_frame_header_is_not_believed() -> None:
    """Pillow uses the last frame header, so a large one after a small one would make it allocate too much."""
    jpeg = CASES["cmyk"]
    at = jpeg.index(b"\xff\xc0")
    length = 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    large = claiming(jpeg[at : at + length], 65535, 65535)
    with pytest.raises(RecordError, match=r"its frame headers \(SOF\) contradict each other"):
        decode(jpeg[: at + length] + large + jpeg[at + length :])


def test_no_limit_but_ours_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow, which decodes images of four components, has a limit of its own."""
    wanted = decode(CASES["cmyk"])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    np.testing.assert_array_equal(decode(CASES["cmyk"]), wanted)
    np.testing.assert_array_equal(decode(to_progressive(CASES["cmyk"])), wanted)


def test_the_loader_has_the_limit_of_its_records(tmp_path: Path) -> None:
    encode(write_images(tmp_path / "in", {"a": PLAIN, "b": PLAIN}), tmp_path / "out")

    def images(max_pixels: int) -> int:
        records = RecordSet(FolderStorage(tmp_path / "out"), "pcr", max_pixels=max_pixels)
        with RecordLoader(
            records,
            StaticScan(10),
            LoaderConfig(num_workers=0),
            transform=EvalTransform(32, AugmentConfig()),
            label="kind",
            batch_size=2,
            seed=0,
            shuffle=False,
            storage_config=StorageConfig(name="unlimited"),
        ) as loader:
            return sum(len(batch.images) for batch in loader.batches(0, 0, 1))

    assert images(176 * 144) == 2
    with pytest.raises(RecordError, match=r"176 x 144 pixels are more than max_pixels=1000"):
        images(1000)


def test_a_file_of_many_scans_is_refused() -> None:
    """Decoders pass over all pixels for each scan, so a few kB of scans could keep them busy for hours."""
    pieces = split_scans(to_progressive(PLAIN))
    many = join_pieces([*pieces, *[pieces[-1]] * 55])
    with pytest.raises(RecordError, match=r"it cannot be decoded: 65 scans are more than 64: "):
        decode(many, "it")
    with pytest.raises(
        ImageError, match=r"^65 scans are more than 64: decoders pass over all pixels for each$"
    ):
        to_progressive(many)


def test_what_looks_like_scans_in_a_comment_is_none() -> None:
    jpeg = to_jpeg(photo(), comment=b"\xff\xda" * 1000)
    assert decode(jpeg).shape == (144, 176, 3)
    assert len(group_pieces(split_scans(to_progressive(jpeg)))) == 10


def test_other_formats_are_not_decoded() -> None:
    """Records hold JPEG files. Pillow would read many other formats, each with its own ways to be large."""

    buffer = io.BytesIO()
    photo().save(buffer, "PNG")
    for mode in DECODE_MODES:
        with pytest.raises(RecordError, match="sample 7 cannot be decoded: not a JPEG"):
            open_decoder(mode, "baseline")(buffer.getvalue(), 1, "sample 7")


def test_a_file_that_no_record_can_hold_is_not_even_read(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"4294967296 bytes are too many for a record: at most 4294967295"):
        load_image(tmp_path / "absent.jpg", 2**32)


def test_the_config() -> None:
    assert RecordsConfig().max_pixels == MAX_PIXELS
    with pytest.raises(ConfigError, match=r"records.max_pixels=0: wanted at least 1"):
        RecordsConfig(max_pixels=0)
