"""One image file, in the two encodings that records hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pcr_exp.config.records import MAX_PIXELS, NUM_GROUPS
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.orientation import UPRIGHT, read_orientation
from pcr_exp.images.transcode import refuse_unsupported, to_progressive
from pcr_exp.records.groups import MAX_PIECE_BYTES

Known = Callable[[bytes], list[bytes] | None]
"""Gives the pieces, one per scan group, of an original that was transcoded before; None if it was not."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """`original` as it lies on disk; `groups` holds its progressive form, one piece per scan group."""

    original: bytes
    groups: list[bytes]
    is_turned: bool
    """EXIF says to turn it for display. Pixels are stored as they lie, as `ImageFolder` would read them."""


def load_image(
    path: Path, num_bytes: int | None, max_pixels: int = MAX_PIXELS, known: Known | None = None
) -> StoredImage:
    """Read and transcode one file, and check that its pieces give the whole progressive file back.

    Args:
        path: the image.
        num_bytes: its size when the encode began; None if it could not be looked at.
        max_pixels: `records.max_pixels`.
        known: asked for the pieces before anything is transcoded.

    Raises:
        ImageError: it cannot be stored faithfully; the message is the reason.
        RecordError: there is nothing to transcode with, or it does not work as it should.
    """
    if num_bytes is not None and num_bytes > MAX_PIECE_BYTES:
        raise ImageError(f"{num_bytes} bytes are too many for a record: at most {MAX_PIECE_BYTES}")
    try:
        original = path.read_bytes()
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror}") from error
    if len(original) != num_bytes:
        raise ImageError(f"changed while it was being encoded: {num_bytes} bytes before, {len(original)} now")
    refuse_unsupported(original, max_pixels)
    groups = known(original) if known is not None else None
    if groups is None:
        progressive = to_progressive(original, max_pixels)
        groups = group_pieces(split_scans(progressive), NUM_GROUPS)
        if join_pieces(groups) != progressive:
            raise RecordError(f"{path}: its scan groups do not give the file back. Please report this.")
    return StoredImage(original, groups, read_orientation(original) != UPRIGHT)
