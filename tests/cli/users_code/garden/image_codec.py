import io

import numpy as np
from PIL import Image

from pcr_exp.config.components import register
from pcr_exp.images.codec import GROUP
from pcr_exp.images.decode import WholeJpeg
from pcr_exp.images.decoded import DecodedImage


class TwoSizes(WholeJpeg):
    """Codec whose group 1 is a thumbnail of 16 x 16 raw pixels, and group 2 the whole file."""

    name = "two-sizes"
    num_groups = 2

    def encode(self, original, max_pixels):
        with Image.open(io.BytesIO(original)) as image:
            return np.asarray(image.convert("RGB").resize((16, 16))).tobytes() + original

    def split(self, encoded):
        return [encoded[:768], encoded[768:]]

    def open_decoder(self, mode, max_pixels):
        def decode(file, group, name):
            if group == 1:
                return DecodedImage(np.frombuffer(file, np.uint8).reshape(16, 16, 3))
            with Image.open(io.BytesIO(bytes(file)[768:])) as image:
                return DecodedImage(np.asarray(image.convert("RGB")))

        return decode


@register(GROUP, TwoSizes.name)
def open_two_sizes() -> TwoSizes:
    return TwoSizes()
