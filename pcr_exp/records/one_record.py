"""Make one record from its image files; shared by the local and the Ray encoding engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.datasets.sample import PackedImage, Sample
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.images.decode import PROGRESSIVE
from pcr_exp.images.jpeg import group_pieces, read_header, split_scans
from pcr_exp.images.transcode import default_num_scans
from pcr_exp.records.fields import load_fields
from pcr_exp.records.fingerprint import states_key
from pcr_exp.records.groups import MAX_PIECE_BYTES
from pcr_exp.records.markers import RecordMarker
from pcr_exp.records.reuse import StoredImages
from pcr_exp.records.writer import SplitWriter, StoredImage

Known = Callable[[bytes], list[bytes] | None]
"""Looks up the pieces of an already encoded original, one per scan group; None if it is unknown."""


def load_image(
    file: Path | PackedImage,
    num_bytes: int | None,
    max_pixels: int = MAX_PIXELS,
    known: Known | None = None,
    codec: ImageCodec = PROGRESSIVE,
) -> StoredImage:
    """Read and encode one file, and verify that newly encoded pieces rejoin into the encoded file.

    Args:
        file: the image.
        num_bytes: its file size when the encode began; None if that could not be read.
        max_pixels: `records.max_pixels`.
        known: lookup of already encoded pieces, tried before encoding.
        codec: splits the image into scan groups.

    Raises:
        ImageError: the image cannot be stored faithfully; the message gives the reason.
        RecordError: no encoder is installed, or its output is wrong.
    """
    if num_bytes is not None and num_bytes > MAX_PIECE_BYTES:
        raise ImageError(f"{num_bytes} bytes are too many for a record: at most {MAX_PIECE_BYTES}")
    try:
        original = file.read_bytes()
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror}") from error
    if len(original) != num_bytes:
        before = "not readable" if num_bytes is None else f"{num_bytes} bytes"
        raise ImageError(f"changed while it was being encoded: {before} before, {len(original)} bytes now")
    codec.check(original, max_pixels)
    groups = known(original) if known is not None else None
    if groups is None:
        encoded = codec.encode(original, max_pixels)
        groups = codec.split(encoded)
        if len(groups) != codec.num_groups or b"".join(codec.join(groups)) != encoded:
            raise RecordError(
                f"{file}: joining its scan groups does not restore the file. Please report this."
            )
    return StoredImage(original, groups, codec.is_turned(original))


def stored_pieces(packed: PackedImage, original: bytes) -> list[bytes]:
    """Return the pieces of an image that is already progressive; no byte is re-encoded.

    Args:
        packed: the image inside a file of many.
        original: the result of its `read_bytes`.

    Raises:
        ImageError: not progressive with libjpeg's default number of scans, or not cut at the scan ends.
    """
    header = read_header(original)
    wanted = default_num_scans(header.num_components)
    if not header.is_progressive or header.num_scans not in wanted:
        kind = "progressive" if header.is_progressive else "not progressive"
        raise ImageError(
            f"it is {kind} and has {header.num_scans} scans for {header.num_components} components; wanted "
            f"{' or '.join(map(str, sorted(wanted)))}, as by libjpeg's default progressive script"
        )
    groups = group_pieces(split_scans(original))
    if groups != group_pieces(packed.pieces(original), len(groups)):
        raise ImageError("its pieces do not end where its scans end")
    return groups


Task = tuple[Sample, int | None]
"""A sample and its file size in bytes; None if the size could not be read."""

Load = Callable[[Sample, int | None], StoredImage | ImageError]
"""Loads the image of a sample, given its file's size."""


def states_of(tasks: Sequence[Task]) -> str:
    """Return `states_key` of the tasks' samples. Call this before they are loaded."""
    return states_key(sample for sample, _ in tasks)


def make_record(
    number: int, tasks: Sequence[Task], *, writer: SplitWriter, on_error: str, load: Load
) -> RecordMarker | ImageError:
    """Load the images of a record and write it; with `on_error=fail`, return the first bad image's error."""
    states = states_of(tasks)
    loaded = []
    for sample, num_bytes in tasks:
        outcome = load(sample, num_bytes)
        if on_error == "fail" and isinstance(outcome, ImageError):
            return explain(str(sample.path), str(outcome))
        loaded.append((sample, outcome))
    return writer.write_record(number, loaded, states)


def load_sample(
    sample: Sample,
    num_bytes: int | None,
    *,
    max_pixels: int,
    reuse: StoredImages | None,
    codec: ImageCodec,
    fields: Mapping[str, str] | None = None,
) -> StoredImage | ImageError:
    """Read and encode the image of a sample, or return the error that prevents it.

    An image found in `reuse` is taken from there. An image packed in a file of many is already cut into
    libjpeg's default scans; if `codec` uses these, its pieces are stored unchanged.

    With `fields` (name -> kind), the sample's fields are loaded too. An invalid field, such as a mask of the
    wrong size, makes the image unstorable.
    """
    known: Known | None = None if reuse is None else partial(reuse.groups, sample.id)
    if sample.packed is not None and codec.name == SCANS["pcr"]:
        known = partial(stored_pieces, sample.packed)
    try:
        image = load_image(sample.file, num_bytes, max_pixels, known, codec)
        return image if not fields else replace(image, fields=load_fields(sample, fields, image.original))
    except ImageError as error:
        return error


def explain(image: str, reason: str) -> ImageError:
    """Return the error that ends an encode with `records.on_error=fail`."""
    return ImageError(
        f"{image}: {reason}. Repair or remove it, or set records.on_error=skip to leave such images out and "
        "list them in rejected.csv."
    )
