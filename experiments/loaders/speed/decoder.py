"""Cost of decoding by our decoder and others: originals, and first scans of progressive files.

`python -m experiments.loaders.speed.decoder` prints a table, saved as outputs/throughput/decoder.csv: CPU
milliseconds per native ImageNet image from a file in memory to RGB, in one process, with everything warm. The
decoders take turns on each image. `of_original` is relative to libjpeg-turbo's time for the originals in the
same repeat. `area` is the share of the image that is decoded, around its centre. Ours and `libjpeg-turbo` (by
libturbojpeg) omit block smoothing. Other packages are called as users call them: they decode whole images and
smooth first scans. A package that is not installed is named and left out.
"""

from __future__ import annotations

import importlib
import io
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from experiments.results.study import Row, Study, by_turns, native_samples
from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.errors import ImageError
from pcr_exp.images.decoded import PartDecoder
from pcr_exp.images.decoder import find_decoder
from pcr_exp.images.jpeg import join_pieces, split_scans
from pcr_exp.images.libturbojpeg import find_part_decoder
from pcr_exp.images.smoothing import prefix_of, read_progressive, without_smoothing
from pcr_exp.images.transcode import to_progressive
from pcr_exp.system.process import keep_freed_memory

SCANS = (10, 5, 2, 1)
ORIGINAL = "original"
AREAS = (1.0, 0.5)


def files_of(original: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Return by name (`original`, `10 scans`) the file, and one that gives libjpeg-turbo the same pixels.

    Raises:
        ImageError: the file is not supported, or libjpeg would smooth it.
    """
    found = {ORIGINAL: (original, original)}
    scans = split_scans(to_progressive(original))
    for count in SCANS:
        jpeg = join_pieces(scans[:count])
        header = read_progressive(jpeg)
        prefix = prefix_of(DEFAULT, len(header.tables), count) if header else None
        unsmoothed = without_smoothing(jpeg, header, prefix) if header and prefix else None
        if unsmoothed is None:
            raise ImageError("libjpeg smooths it")
        found[f"{count} scans"] = jpeg, bytes(unsmoothed)
    return found


def by_pillow() -> Callable[[bytes], Any]:
    """Return Pillow's decoder: RGB pixels as an array."""
    image = importlib.import_module("PIL.Image")
    return lambda jpeg: np.asarray(image.open(io.BytesIO(jpeg)).convert("RGB"))


def by_opencv() -> Callable[[bytes], Any]:
    """Return OpenCV's decoder, which converts BGR to RGB itself."""
    cv2 = importlib.import_module("cv2")
    cv2.setNumThreads(0)
    return lambda jpeg: cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR_RGB)


def by_torchcodec() -> Callable[[bytes], Any]:
    """Return TorchCodec's decoder, which torch's loaders use here: uint8 [3, H, W]."""
    decode = importlib.import_module("torchcodec.decoders").decode_image
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    return lambda jpeg: decode(jpeg, mode="RGB")


def by_kornia() -> Callable[[bytes], Any]:
    """Return the faster of kornia-rs's two decoders."""
    decode = importlib.import_module("kornia_rs.io").decode_image_jpegturbo
    return lambda jpeg: decode(jpeg, "rgb")


PEERS = {"Pillow": by_pillow, "OpenCV": by_opencv, "TorchCodec": by_torchcodec, "kornia-rs": by_kornia}


def peers() -> dict[str, Callable[[bytes], Any]]:
    """Return the installed decoders by name; print which are not installed."""
    found = {}
    for name, load in PEERS.items():
        try:
            found[name] = load()
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def own_and_turbo() -> tuple[PartDecoder, PartDecoder]:
    """Return our decoder and libjpeg-turbo's; exit if one is missing."""
    ours, turbo = find_decoder(), find_part_decoder()
    if ours is None or turbo is None:
        sys.exit("decoders are missing: `python -m pcr_exp doctor` says how to get them")
    return ours, turbo


def call_of(decoder: PartDecoder, jpeg: bytes, area: float) -> Callable[[], object]:
    """Return a call that decodes the central `area`, from a column at which both decoders can start."""
    frame = decoder.read_frame(jpeg)
    side = area**0.5
    rows, columns = round(frame.height_px * side), round(frame.width_px * side)
    top, left = (frame.height_px - rows) // 2, (frame.width_px - columns) // 2
    left -= left % frame.mcu_width_px

    def call() -> object:
        decoder.read_frame(jpeg)
        return decoder.decode(jpeg, 1, top, left, rows, columns)

    return call


def rows(given: Namespace) -> Iterator[Row]:
    """Measure the cases in turn, image by image."""
    keep_freed_memory()
    decoders = [*zip(("ours", "libjpeg-turbo"), own_and_turbo(), strict=True)]
    others = peers()
    calls: dict[tuple[str, float, str], list[Callable[[], object]]] = {}
    for sample in native_samples(given.num_images, given.images):
        try:
            files = files_of(sample.path.read_bytes())
            of_image = {
                (what, area, name): call_of(decoder, jpegs[number], area)
                for (what, jpegs), area in product(files.items(), AREAS)
                for number, (name, decoder) in enumerate(decoders)
            }
            of_image |= {
                (what, 1.0, name): partial(decode, jpegs[0])
                for (what, jpegs), (name, decode) in product(files.items(), others.items())
            }
        except ImageError:  # CMYK, and files that libjpeg cannot be kept from smoothing
            continue
        for case, call in of_image.items():
            calls.setdefault(case, []).append(call)
    num_measured = len(calls[ORIGINAL, 1.0, "ours"])
    cases = {case: lambda item, each=each: each[item]() for case, each in calls.items()}
    # A package may use threads, so measure the CPU time of the whole process.
    for repeat, spent_s in enumerate(by_turns(cases, num_measured, given.repeats, time.process_time)):
        for (what, area, name), seconds in spent_s.items():
            yield {
                "file": what,
                "area": area,
                "decoder": name,
                "repeat": repeat,
                "ms": 1e3 * seconds / num_measured,
                "of_original": seconds / spent_s[ORIGINAL, area, "libjpeg-turbo"],
                "of_same": seconds / spent_s[what, area, "libjpeg-turbo"],
            }


main = Study(__doc__, "outputs/throughput/decoder.csv", rows, repeats=9)
main.add("--num-images", type=int, default=200)

if __name__ == "__main__":
    main()
