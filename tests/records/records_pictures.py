"""JPEG test files: crops of a photograph that scikit-image ships, written in many ways."""

from __future__ import annotations

import io
import struct
import tempfile
from pathlib import Path
from typing import Any

import jpeglib
import numpy as np
import numpy.typing as npt
import simplejpeg
import skimage.data
from PIL import Image


def photo(width: int = 176, height: int = 144) -> Image.Image:
    """Return a crop of a portrait with skin, cloth and a sharp background."""
    return Image.fromarray(skimage.data.astronaut()[40 : 40 + height, 150 : 150 + width])


def to_jpeg(image: Image.Image, **options: Any) -> bytes:
    """Return the JPEG file that Pillow saves."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def exif(orientation: int, thumbnail: bytes = b"", order: str = "<") -> bytes:
    """Return an EXIF segment's payload: orientation in directory 0, a JPEG thumbnail in directory 1."""
    start = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HI", 42, 8)
    directory = struct.pack(f"{order}H HHIHH", 1, 0x0112, 3, 1, orientation, 0)
    if not thumbnail:
        return b"Exif\x00\x00" + start + directory + struct.pack(f"{order}I", 0)
    second = 8 + len(directory) + 4
    content = second + 2 + 3 * 12 + 4
    entries = ((0x0103, 3, 6 if order == "<" else 6 << 16), (0x0201, 4, content), (0x0202, 4, len(thumbnail)))
    tail = struct.pack(f"{order}H", 3)
    tail += b"".join(struct.pack(f"{order}HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return (
        b"Exif\x00\x00"
        + start
        + directory
        + struct.pack(f"{order}I", second)
        + tail
        + struct.pack(f"{order}I", 0)
        + thumbnail
    )


def pixels(jpeg: bytes) -> npt.NDArray[np.uint8]:
    """Decode with Pillow, in the file's own colour mode."""
    return np.asarray(Image.open(io.BytesIO(jpeg)))


def _make_cases() -> dict[str, bytes]:
    image = photo()
    array = np.ascontiguousarray(np.asarray(image))
    thumbnail = to_jpeg(photo(32, 24))
    return {
        "444": to_jpeg(image, subsampling=0, quality=95),
        "422": to_jpeg(image, subsampling=1),
        "420": to_jpeg(image, subsampling=2),
        "440": simplejpeg.encode_jpeg(array, colorsubsampling="440"),
        "411": simplejpeg.encode_jpeg(array, colorsubsampling="411"),
        "grey": to_jpeg(image.convert("L")),
        "rgb": to_jpeg(image, keep_rgb=True),
        "cmyk": to_jpeg(image.convert("CMYK")),
        "optimised": to_jpeg(image, optimize=True),
        "progressive": to_jpeg(image, progressive=True),
        "restart_blocks": to_jpeg(image, restart_marker_blocks=3),
        "restart_rows": to_jpeg(image, restart_marker_rows=1),
        "exif_thumbnail": to_jpeg(image, exif=exif(1, thumbnail)),
        "exif_turned": to_jpeg(image, exif=exif(6, thumbnail, ">")),
        "icc_profile": to_jpeg(image, icc_profile=b"profile " * 400),
        "comment": to_jpeg(image, comment=b"\xff\xda a comment with the bytes of a marker \xff\xd9"),
        "odd_size": to_jpeg(photo(61, 37), subsampling=2),
        "one_pixel": to_jpeg(photo(1, 1)),
    }


CASES = _make_cases()
"""JPEG files that must be stored faithfully, by name."""
EOI = b"\xff\xd9"
PLAIN = CASES["420"]


def restamped(
    jpeg: bytes, code: int | None = None, precision: int | None = None, height: int | None = None
) -> bytes:
    """Return a baseline file whose frame header claims to be something else."""
    at = jpeg.index(b"\xff\xc0")
    changed = bytearray(jpeg)
    if code is not None:
        changed[at + 1] = code
    if precision is not None:
        changed[at + 4] = precision
    if height is not None:
        changed[at + 5 : at + 7] = height.to_bytes(2, "big")
    return bytes(changed)


def subsampled(vertical: int) -> bytes:
    """Return a file whose luma has `vertical` times the lines of its chroma; decoders support at most 2."""
    image = jpeglib.from_spatial(np.asarray(photo()))
    image.samp_factor = ((vertical, 1), (1, 1), (1, 1))
    with tempfile.TemporaryDirectory() as folder:
        image.write_spatial(f"{folder}/image.jpg")
        return Path(folder, "image.jpg").read_bytes()


BAD = {
    "zero-byte": (b"", "zero-byte file"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(20), "PNG content"),
    "gif": (b"GIF89a" + bytes(20), "GIF content"),
    "webp": (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "WebP content"),
    "bmp": (b"BM" + bytes(20), "BMP content"),
    "tiff": (b"II*\x00" + bytes(20), "TIFF content"),
    "avif": (b"\x00\x00\x00\x1cftypavif" + bytes(20), "AVIF content"),
    "heif": (b"\x00\x00\x00\x1cftypheic" + bytes(20), "HEIF or MP4 content"),
    "html": (b"\n <!DOCTYPE html><html><body>Not found</body></html>", "text/HTML content"),
    "text": (b"404: not found\n", "text content"),
    "zeros": (bytes(500), "nothing but zero bytes"),
    "noise": (b"\x93\x07\x00\xfe" * 9, "unknown content, first bytes 93 07 00 FE"),
    "only_soi": (b"\xff\xd8", "truncated"),
    "cut_in_header": (PLAIN[:100], "truncated"),
    "cut_in_scan": (PLAIN[: len(PLAIN) // 2], "truncated: Premature end of JPEG file"),
    "no_eoi": (PLAIN[:-2], "truncated"),
    "arithmetic": (restamped(PLAIN, code=0xC9), "arithmetic-coded JPEG is not supported"),
    "lossless": (restamped(PLAIN, code=0xC3), "lossless JPEG is not supported"),
    "12-bit": (restamped(PLAIN, code=0xC1, precision=12), "12-bit JPEG is not supported"),
    "no_height": (restamped(PLAIN, height=0), "a size of 176 x 0 pixels"),
    "no_frame": (b"\xff\xd8\xff\xfe\x00\x04ab\xff\xd9", "no frame header"),
    "junk_in_header": (PLAIN[:20] + b"junk" + PLAIN[20:], "wanted a marker at byte 20"),
    "sampling_1x3": (subsampled(3), "damaged or unsupported: "),
    "sampling_1x4": (subsampled(4), "damaged or unsupported: "),
    "damaged_scan": (PLAIN[:-900] + b"\xff\xd0\x01" + PLAIN[-897:], "damaged or unsupported: "),
}
"""Files that must be refused, and the text that the reason must contain, by name."""
