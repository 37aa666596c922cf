"""What a file that is called an image really holds."""

from __future__ import annotations

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
    """Name what `data` is, for people, by its first bytes; only said of bytes that are no JPEG."""
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
