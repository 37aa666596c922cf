"""The interface between records and image formats: codecs, and the names that records find them by.

A codec stores an image as pieces, one per scan group; the first few already show the image. The two JPEG
codecs are in `decode`. To add another, write a module with a class like `ImageCodec`, and register it by its
name as `images.codec`; `records.codec` then encodes with it. Records store the name (`scans`), so readers
find the codec that wrote them. Codecs that differ in settings form a family: their names consist of the
family's name, `_`, and the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pcr_exp.config.components import component, names
from pcr_exp.errors import ConfigError, RecordError

GROUP = "images.codec"
"""Component group in which codecs are registered by name (`pcr_exp.config.components`)."""

FAMILIES = "images.codec_family"
"""Component group of codec families. Each builds the codec for a full name, or raises ValueError."""

Buffer = bytes | bytearray | memoryview
Pixels = npt.NDArray[np.uint8]


class Part(NamedTuple):
    """A rectangle of an image, and decoded pixels that contain it.

    `top`, `left`, `rows` and `columns` are in units of `pixels`. They may be fractional if the image was
    decoded at a fraction of its size.
    """

    pixels: Pixels
    """uint8 [h, w, 3]."""
    top: float
    left: float
    rows: float
    columns: float
    denominator: int
    """Each pixel in `pixels` stands for denominator x denominator pixels at full size."""


class Source(Protocol):
    """A decoded image, from which crops take parts."""

    height_px: int
    width_px: int

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """Return a rectangle of the image, given in full-size pixels. It must lie within the image."""


Decoder = Callable[[Buffer, int, str], Source]
"""Takes a file, the scan group to read it at, and its name for error messages (RecordError).

If the file's buffer is writable, the decoder may modify it.
"""


class ImageCodec(Protocol):
    """One way to store images in scan groups. Stateless: threads and processes share it."""

    @property
    def name(self) -> str:
        """Name that its records store as `scans`: letters, digits, '.', '_' and '-'."""

    @property
    def num_groups(self) -> int:
        """Number of pieces per image."""

    def check_installed(self) -> None:
        """Raise RecordError, naming what to install, if a library that `encode` needs is missing."""

    def check(self, original: bytes, max_pixels: int) -> None:
        """Raise ImageError, with the reason, if a file's header shows that it cannot be stored faithfully."""

    def is_turned(self, original: bytes) -> bool:
        """Whether a viewer would rotate or flip the image. Pixels are stored without that."""

    def encode(self, original: bytes, max_pixels: int) -> bytes:
        """Return the file in the form that `split` takes. No pixel changes. Raises as `check` does."""

    def split(self, encoded: bytes) -> list[bytes]:
        """Split a file into one piece per group; pieces may be empty. Raises ImageError if it is damaged."""

    def join(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        """Return the buffers that, concatenated, make a file of an image's first pieces.

        All pieces together give the encoded file, byte for byte.
        """

    def open_decoder(self, mode: str, max_pixels: int) -> Decoder:
        """Return the decoder for `loader.decode=<mode>`. It refuses images of more than `max_pixels`."""


def find_codec(name: str, where: str = "records") -> ImageCodec:
    """Return the codec of this name.

    Raises:
        RecordError: no such codec is known; the message begins with `where`.
    """
    codec: ImageCodec
    try:
        codec = component(GROUP, name).build()
    except KeyError:
        try:
            codec = component(FAMILIES, name.partition("_")[0]).build(name)
        except (KeyError, ValueError, ConfigError):
            raise RecordError(
                f"{where}: the image codec {name!r} is unknown; known are {', '.join(names(GROUP))}. "
                "Name the package that registers it: components=[my_package]."
            ) from None
    return codec
