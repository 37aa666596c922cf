"""The interface between records and image formats: a codec, and the name that records find it by.

A codec stores an image as pieces, one per scan group, such that the first few of them already show it. JPEG's
two are in `decode`. Another is a module of its own: a class like `ImageCodec`, registered by its name as
`images.codec`; `records.codec` then encodes with it. Records state its name (`scans`), so that readers find
the codec that wrote them. Codecs that differ in settings are a family: their names begin with its name and
`_`, and say the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pcr_exp.config.components import component, names
from pcr_exp.errors import ConfigError, RecordError

GROUP = "images.codec"
"""Where codecs are registered (`pcr_exp.config.components`), each by its name."""

FAMILIES = "images.codec_family"
"""Where families of codecs are registered: each builds the codec of a name, or raises ValueError."""

Buffer = bytes | bytearray | memoryview
Pixels = npt.NDArray[np.uint8]


class Part(NamedTuple):
    """A rectangle of an image, and pixels that hold it.

    `top`, `left`, `rows` and `columns` are in units of `pixels`; where the image was decoded at a fraction of
    its size they need not be whole.
    """

    pixels: Pixels
    """uint8 [h, w, 3]."""
    top: float
    left: float
    rows: float
    columns: float
    denominator: int
    """Each of `pixels` stands for denominator x denominator pixels of the full size."""


class Source(Protocol):
    """A decoded image; crops take parts."""

    height_px: int
    width_px: int

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """The rectangle that is given in pixels of the full size and lies within it."""


Decoder = Callable[[Buffer, int, str], Source]
"""Takes a file, the scan group that it is read at, and what to call it in an error (RecordError).

If the file's buffer is writable, the decoder may change it.
"""


class ImageCodec(Protocol):
    """One way to store images in scan groups. Stateless: threads and processes share it."""

    @property
    def name(self) -> str:
        """The `scans` of its records: letters, digits, '.', '_' and '-'."""

    @property
    def num_groups(self) -> int:
        """Pieces of an image."""

    def check_installed(self) -> None:
        """Raise RecordError, which says what to install, if `encode` would find a library missing."""

    def check(self, original: bytes, max_pixels: int) -> None:
        """Raise ImageError, with the reason, for a file that cannot be stored faithfully, by its header."""

    def is_turned(self, original: bytes) -> bool:
        """Whether a viewer would turn the image: its pixels are stored as they lie."""

    def encode(self, original: bytes, max_pixels: int) -> bytes:
        """The file in the form that is split: no pixel is changed. Raises as `check` does."""

    def split(self, encoded: bytes) -> list[bytes]:
        """One piece per group, which may be empty. Raises ImageError if it is damaged."""

    def join(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        """The first pieces of an image as a file: buffers to be laid end to end.

        All pieces give the encoded file, byte for byte.
        """

    def open_decoder(self, mode: str, max_pixels: int) -> Decoder:
        """The decoder for `loader.decode=<mode>`; it refuses images of more than `max_pixels`."""


def find_codec(name: str, where: str = "records") -> ImageCodec:
    """The codec of this name.

    Raises:
        RecordError: there is none; the message begins with `where`.
    """
    codec: ImageCodec
    try:
        codec = component(GROUP, name).build()
    except KeyError:
        try:
            codec = component(FAMILIES, name.partition("_")[0]).build(name)
        except (KeyError, ValueError, ConfigError):
            raise RecordError(
                f"{where}: the image codec {name!r} is not known here; there are {', '.join(names(GROUP))}. "
                "Name the package that registers it: components=[my_package]."
            ) from None
    return codec
