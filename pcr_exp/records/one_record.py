"""One record, from the files of its images to its own: what every engine of an encode does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pcr_exp.config.records import SCANS
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ImageError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.records.image import Known, StoredImage, load_image, pieces_as_they_lie
from pcr_exp.records.receipts import Receipt
from pcr_exp.records.reuse import StoredImages
from pcr_exp.records.writer import SplitWriter

Task = tuple[Sample, int | None]
"""A sample and its file's size, None if that could not be looked at."""
Load = Callable[[Sample, int | None], StoredImage | ImageError]
"""Loads the image of a sample, given its file's size."""


def make_record(
    number: int, tasks: Sequence[Task], *, writer: SplitWriter, on_error: str, load: Load
) -> Receipt | ImageError:
    """Load the images of a record and write it; of `on_error=fail`, the error of its first bad image."""
    loaded = []
    for sample, num_bytes in tasks:
        outcome = load(sample, num_bytes)
        if on_error == "fail" and isinstance(outcome, ImageError):
            return explain(str(sample.path), str(outcome))
        loaded.append((sample, outcome))
    return writer.write_record(number, loaded)


def load_sample(
    sample: Sample,
    num_bytes: int | None,
    *,
    max_pixels: int,
    reuse: StoredImages | None,
    codec: ImageCodec,
) -> StoredImage | ImageError:
    """Read and encode the image of a sample, or say why it cannot be stored.

    An image that lies in a file of many is cut into its scans already, and taken as it lies; one that `reuse`
    holds is taken from there.
    """
    known: Known | None = None if reuse is None else partial(reuse.groups, sample.id)
    if sample.packed is not None and codec.name == SCANS["pcr"]:
        known = partial(pieces_as_they_lie, sample.packed)
    try:
        return load_image(sample.file, num_bytes, max_pixels, known, codec)
    except ImageError as error:
        return error


def explain(image: str, reason: str) -> ImageError:
    """The error that ends an encode with `records.on_error=fail`."""
    return ImageError(
        f"{image}: {reason}. Repair or remove it, or set records.on_error=skip to leave such images out and "
        "list them in rejected.csv."
    )
