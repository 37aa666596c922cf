"""Lossless transcoding to progressive JPEG, with whichever libjpeg-turbo is available.

For libjpeg's default script, the shared library is used if there is one, else the `jpegtran` program. Both
write the bytes of `jpegtran -optimize -progressive -copy none`. Other scripts need the program, as no library
interface accepts scripts (`python -m experiments.pcr.scan_scripts` measures what that costs).
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from typing import Protocol

import simplejpeg

from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.config.scan_scripts import DEFAULT, ScanScript
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.jpeg import SOI, check_frame, read_frame, read_header
from pcr_exp.images.libturbojpeg import LibTurboJpeg, library_paths


class Transcoder(Protocol):
    """Transcodes a JPEG. Raises ImageError, with its own message, if it rejects or warns about the bytes."""

    path: str

    def __call__(self, jpeg: bytes) -> bytes: ...


_WANTED_CODES = {0xC0, 0xC1, 0xC2}
"""Baseline, extended sequential and progressive DCT with Huffman coding, which decoders support."""
_UNSUPPORTED_CODES = {
    0xC3: "lossless",
    0xC5: "hierarchical",
    0xC6: "hierarchical",
    0xC7: "hierarchical lossless",
    0xC9: "arithmetic-coded",
    0xCA: "arithmetic-coded",
    0xCB: "arithmetic-coded lossless",
    0xCD: "arithmetic-coded hierarchical",
    0xCE: "arithmetic-coded hierarchical",
    0xCF: "arithmetic-coded hierarchical lossless",
}


def to_progressive(jpeg: bytes, max_pixels: int = MAX_PIXELS, script: ScanScript = DEFAULT) -> bytes:
    """Recode the same quantised coefficients in the scans of `script`, and drop metadata.

    Raises:
        ImageError: the bytes are not a JPEG, or cannot be stored faithfully; the message is the reason.
        RecordError: no installed program or library writes the script, or it wrote another one.
    """
    refuse_unsupported(jpeg, max_pixels)
    writer = find_writer(script)
    try:
        progressive = writer(jpeg)
    except ImageError as error:
        cut_short = "Premature end" in str(error)
        raise ImageError(f"{'truncated' if cut_short else 'damaged or unsupported'}: {error}") from None
    _refuse_undecodable(progressive)
    header = read_header(progressive)
    wanted = {len(script.scans_of(header.num_components))}
    if script == DEFAULT:
        wanted |= default_num_scans(header.num_components)
    if not header.is_progressive or header.num_scans not in wanted:
        raise RecordError(
            f"{writer.path} wrote {header.num_scans} scans for {header.num_components} components, wanted "
            f"{' or '.join(map(str, sorted(wanted)))}, as libjpeg does (is it mozjpeg?). "
            "Install libjpeg-turbo: `apt install libturbojpeg0` or `pip install turbojpeg`; for scripts "
            "other than the default, `apt install libjpeg-turbo-progs`."
        )
    return progressive


def refuse_unsupported(jpeg: bytes, max_pixels: int) -> None:
    """Raise ImageError, with the reason, if this is not an 8-bit Huffman-coded DCT JPEG, or too large."""
    if not jpeg:
        raise ImageError("zero-byte file")
    if not jpeg.startswith(SOI):
        raise ImageError(f"not a JPEG: {name_content(jpeg)}")
    frame = check_frame(jpeg, max_pixels)
    if frame.code not in _WANTED_CODES:
        raise ImageError(f"{_UNSUPPORTED_CODES[frame.code]} JPEG is not supported")
    if frame.precision_bits != 8:
        raise ImageError(f"{frame.precision_bits}-bit JPEG is not supported, only 8-bit")
    if frame.width_px == 0 or frame.height_px == 0:
        raise ImageError(f"the frame header gives a size of {frame.width_px} x {frame.height_px} pixels")


def _refuse_undecodable(jpeg: bytes) -> None:
    """Raise ImageError for unusual chroma subsampling, which jpegtran writes but training cannot decode."""
    try:
        simplejpeg.decode_jpeg_header(jpeg)
    except (ValueError, KeyError):
        raise ImageError("damaged or unsupported: could not determine the chroma subsampling") from None


def default_num_scans(num_components: int) -> set[int]:
    """Numbers of scans that `jpeg_simple_progression` may write: 10 for YCbCr, else 2 + 4 per component."""
    return {2 + 4 * num_components} | ({10} if num_components == 3 else set())


def find_writer(script: ScanScript) -> Transcoder:
    """Return the writer for a script: `find_transcoder()` for libjpeg's default, `jpegtran` for any other.

    Raises:
        RecordError: it is not installed.
    """
    if script == DEFAULT:
        return find_transcoder()
    program = shutil.which("jpegtran")
    if program is None:
        raise RecordError(
            "records cannot be encoded with this scan script: jpegtran was not found. Install it "
            "(`apt install libjpeg-turbo-progs`), or choose records.scans=default, which needs no program."
        )
    return Jpegtran(program, script)


@functools.cache
def find_transcoder() -> Transcoder:
    """Return the system's libturbojpeg, else that of the `turbojpeg` wheel, else the `jpegtran` program.

    Raises:
        RecordError: none of them is installed.
    """
    for path in library_paths():
        try:
            return LibTurboJpeg(path)
        except (OSError, AttributeError):  # missing, for another architecture, or older than 2.0
            continue
    program = shutil.which("jpegtran")
    if program is not None:
        return Jpegtran(program)
    raise RecordError(
        "records cannot be encoded: neither libturbojpeg nor jpegtran was found. Install one of them: "
        "`pip install turbojpeg`, `apt install libturbojpeg0`, or `apt install libjpeg-turbo-progs`."
    )


class Jpegtran:
    """The `jpegtran` program at `path`, one process per image. The default script is libjpeg's own."""

    def __init__(self, path: str, script: ScanScript | None = None) -> None:
        self.path = path
        self._script = script

    def __call__(self, jpeg: bytes) -> bytes:
        """See `LibTurboJpeg.__call__`. A warning (exit status 2, or any text on stderr) raises ImageError."""
        if self._script is None:
            return _run(jpeg, self.path, "-optimize", "-progressive", "-copy", "none")
        scans = self._script.scans_of(read_frame(jpeg).num_components)
        with tempfile.NamedTemporaryFile("w", prefix="scans-", suffix=".txt") as file:
            file.write("\n".join(map(str, scans)) + "\n")
            file.flush()
            return _run(jpeg, self.path, "-optimize", "-scans", file.name, "-copy", "none")


def _run(jpeg: bytes, *command: str) -> bytes:
    done = subprocess.run(command, input=jpeg, capture_output=True, check=False)
    if done.returncode != 0 or done.stderr:
        message = " ".join(done.stderr.decode(errors="replace").split())
        raise ImageError(message or f"jpegtran ended with status {done.returncode}")
    return done.stdout


_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "PNG content"),
    (b"GIF87a", "GIF content"),
    (b"GIF89a", "GIF content"),
    (b"BM", "BMP content"),
    (b"II*\x00", "TIFF content"),
    (b"MM\x00*", "TIFF content"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000 content"),
    (b"\xff\x4f\xff\x51", "JPEG 2000 content"),
    (b"\xff\x0a", "JPEG XL content"),
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL content"),
    (b"%PDF", "PDF content"),
    (b"PK\x03\x04", "ZIP content"),
    (b"\x1f\x8b", "gzip content"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
)
_HTML_STARTS = (b"<!doctype html", b"<html", b"<?xml", b"<head", b"<body")


def name_content(data: bytes) -> str:
    """Name the content of `data`, which is not a JPEG, for error messages, judging by its first bytes."""
    for signature, name in _SIGNATURES:
        if data.startswith(signature):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP content"
    if data[4:8] == b"ftyp":
        return "AVIF content" if data[8:12] in (b"avif", b"avis") else "HEIF or MP4 content"
    head = data[:512].lstrip().lower()
    if head.startswith(_HTML_STARTS):
        return "text/HTML content"
    if not data.strip(b"\x00"):
        return "nothing but zero bytes"
    if all(byte >= 32 or byte in b"\t\r\n\f" for byte in data[:512]) and b"\x7f" not in data[:512]:
        return "text content"
    return "unknown content, first bytes " + data[:8].hex(" ").upper()
