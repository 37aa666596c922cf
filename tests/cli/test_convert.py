"""`python -m pcr_exp convert` converts PNG and WebP to JPEG files and reports the loss."""

from __future__ import annotations

import csv
import io
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import skimage.data
from PIL import Image

from pcr_exp.cli import main
from pcr_exp.errors import DatasetError, ImageError
from pcr_exp.images.convert import convert, convert_folder
from pcr_exp.images.transcode import to_progressive

PHOTO = Image.fromarray(skimage.data.astronaut()).crop((100, 50, 164, 98))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(jpeg: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")).astype(float)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_the_loss_is_that_of_the_pixels(kind: str) -> None:
    lossless = {"lossless": True} if kind == "WEBP" else {}
    converted = convert(encoded(PHOTO, kind, **lossless), quality=90)
    mean_square = np.mean((pixels(converted.jpeg) - np.asarray(PHOTO)) ** 2)
    assert converted.psnr_db == pytest.approx(10 * math.log10(255**2 / mean_square))
    assert converted.psnr_db < convert(encoded(PHOTO, kind, **lossless), quality=98).psnr_db
    assert to_progressive(converted.jpeg)  # it can be encoded in records


def test_what_a_jpeg_has_no_room_for_is_said() -> None:
    see_through = PHOTO.copy()
    see_through.putalpha(0)
    converted = convert(encoded(see_through, "PNG"))
    assert converted.left_out == ("alpha",) and (pixels(converted.jpeg) == 255).all()
    assert converted.psnr_db == math.inf
    opaque = PHOTO.convert("RGBA")
    assert convert(encoded(opaque, "PNG")).left_out == ()
    deep = Image.fromarray(np.full((16, 16), 0x8040, dtype=np.uint16))
    converted = convert(encoded(deep, "PNG"))
    assert converted.left_out == ("16 bits",) and (pixels(converted.jpeg) == 0x80).all()
    colours = bytes(cv2.imencode(".png", np.full((16, 16, 3), 0x8040, dtype=np.uint16))[1])
    assert convert(colours).left_out == ("16 bits",)
    palette = convert(encoded(PHOTO.convert("P"), "PNG"))
    assert Image.open(io.BytesIO(palette.jpeg)).mode == "RGB"
    assert Image.open(io.BytesIO(convert(encoded(PHOTO.convert("1"), "PNG")).jpeg)).mode == "L"


def test_what_cannot_be_converted() -> None:
    long = Image.Exif()
    long[0x010E] = "a description of its own " * 3000
    frames = {
        "save_all": True,
        "append_images": [PHOTO.transpose(Image.Transpose.ROTATE_90).resize(PHOTO.size)],
    }
    with pytest.raises(ImageError, match="animated"):
        convert(encoded(PHOTO, "WEBP", **frames))
    with pytest.raises(ImageError, match="not a readable PNG or WebP image"):
        convert(encoded(PHOTO, "JPEG"))
    with pytest.raises(ImageError, match="not a readable PNG or WebP image"):
        convert(encoded(PHOTO, "PNG")[:300])
    with pytest.raises(ImageError, match="cannot be written as a JPEG file: EXIF data is too long"):
        convert(encoded(PHOTO, "PNG", exif=long))
    with pytest.raises(ImageError, match="64 x 48 pixels are more than the limit of 3000"):
        convert(encoded(PHOTO, "PNG"), max_pixels=3000)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize(
    ("colours", "extra"),
    [(2, chunk(b"eXIf", b"MM\0*")), (3, b""), (2, chunk(b"iCCP", b"name\0"))],
    ids=["EXIF cut short", "no palette", "empty profile"],
)
def test_pngs_that_pillow_fails_on_in_other_ways(colours: int, extra: bytes) -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, colours, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(b"\0" * 4))
    with pytest.raises(ImageError, match="not a readable PNG or WebP image"):
        convert(b"\x89PNG\r\n\x1a\n" + header + extra + rows + chunk(b"IEND", b""))


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / b"caf\xe9.png".decode(errors="surrogateescape")).write_bytes(encoded(PHOTO, "PNG"))
    assert main(["convert", str(tmp_path / "in"), str(tmp_path / "out")]) == 0
    assert b"caf\xe9.png" in (tmp_path / "out/converted.csv").read_bytes()


def test_a_folder_is_carried_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in/cat").mkdir(parents=True)
    files = {
        "cat/a.png": encoded(PHOTO, "PNG"),
        "cat/b.WebP": encoded(PHOTO, "WEBP"),
        "cat/c.jpg": encoded(PHOTO, "JPEG"),
        "d.png": b"no image",
        "notes.txt": b"left out",
    }
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data)
    assert main(["convert", str(tmp_path / "in"), str(tmp_path / "out"), "--quality", "92"]) == 1
    said = capsys.readouterr().out
    assert "2 images converted to JPEG of quality 92" in said and "The conversion is lossy: PSNR" in said
    assert "not converted: d.png: not a readable PNG or WebP image" in said
    assert "skipped: notes.txt: not a .jpg, .jpeg, .png or .webp file" in said
    made = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    assert made == {"cat/a.png.jpg", "cat/b.WebP.jpg", "cat/c.jpg", "converted.csv"}
    assert (tmp_path / "out/cat/c.jpg").read_bytes() == files["cat/c.jpg"]
    rows = list(csv.DictReader((tmp_path / "out/converted.csv").open()))
    assert [row["file"] for row in rows] == ["cat/a.png", "cat/b.WebP", "d.png"]
    assert float(rows[0]["psnr_db"]) == pytest.approx(convert(files["cat/a.png"], 92).psnr_db, abs=0.01)
    assert {name: (tmp_path / "in" / name).read_bytes() for name in files} == files
    assert main(["convert", str(tmp_path / "in"), str(tmp_path / "out")]) == 1
    assert "has files already: choose a new folder" in capsys.readouterr().err
    with pytest.raises(DatasetError, match="there is no"):
        convert_folder(
            tmp_path / "nothing", tmp_path / "new", quality=90, num_threads=1, done=lambda *_: None
        )


def test_no_image_takes_the_place_of_another_and_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.png").write_bytes(encoded(PHOTO, "PNG"))
    (source / "b.jpg").symlink_to("nowhere.jpg")
    given: dict[str, Any] = {"quality": 90, "num_threads": 2, "done": lambda *_: None}
    outcomes = convert_folder(source, tmp_path / "out", **given)
    assert [(outcome.file, outcome.error) for outcome in outcomes] == [
        *(("a.png", ""), ("b.jpg", "cannot be read: No such file or directory")),
    ]
    (source / "a.png.jpg").write_bytes(encoded(PHOTO, "JPEG"))
    with pytest.raises(DatasetError, match=r"a\.png and .*a\.png\.jpg would become one file"):
        convert_folder(source, tmp_path / "again", **given)


@pytest.mark.parametrize("quality", [90, 95, 100])
def test_images_of_fine_grain_need_more_bytes_than_pixels(quality: int) -> None:
    grain = np.random.default_rng(0).integers(0, 256, (400, 600, 3), dtype=np.uint8)
    jpeg = convert(encoded(Image.fromarray(grain), "PNG"), quality).jpeg
    assert len(jpeg) > 400 * 600 and Image.open(io.BytesIO(jpeg)).size == (600, 400)


def test_linked_folders_are_searched_and_a_folder_within_itself_is_not(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.png").write_bytes(encoded(PHOTO, "PNG"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/cat").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/up").symlink_to(tmp_path / "in")
    given: dict[str, Any] = {"quality": 90, "num_threads": 2, "done": lambda *_: None}
    outcomes = convert_folder(tmp_path / "in", tmp_path / "out", **given)
    assert [outcome.file for outcome in outcomes] == ["cat/a.png"]
    assert (tmp_path / "out/cat/a.png.jpg").is_file()


def test_files_of_the_wrong_name_are_treated_by_their_content(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.jpg").write_bytes(encoded(PHOTO, "PNG"))
    (source / "b.png").write_bytes(encoded(PHOTO, "JPEG"))
    (source / "c.jpg").write_bytes(encoded(PHOTO, "GIF"))
    (source / "d.png").write_bytes(encoded(PHOTO, "GIF"))
    given: dict[str, Any] = {"quality": 90, "num_threads": 2, "done": lambda *_: None}
    outcomes = convert_folder(source, tmp_path / "out", **given)
    assert [(outcome.file, outcome.error) for outcome in outcomes] == [
        ("a.jpg", ""),
        ("c.jpg", "GIF content, copied as it is"),
        ("d.png", "not a readable PNG or WebP image (GIF content)"),
    ]
    assert to_progressive((tmp_path / "out/a.jpg").read_bytes())
    assert (tmp_path / "out/b.png.jpg").read_bytes() == encoded(PHOTO, "JPEG")
