"""What decoding costs, by our decoder and by libjpeg-turbo: originals, and first scans of progressive files.

`python -m experiments.loaders.speed.decoder` prints a table, kept as outputs/throughput/decoder.csv: CPU
milliseconds per native ImageNet image from a file in memory to RGB, in one process, everything warm, without
block smoothing; each image by both, one after the other. `of_original` is over libjpeg-turbo's time for the
originals in the same repeat. `area` is the part of the image that is decoded, around its centre.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from experiments.loaders.speed.study import Row, Study, native_samples
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
    """By what it holds: the file, and that from which libjpeg-turbo gives the same pixels.

    Raises:
        ImageError: nothing can be made of it.
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


def call_of(decoder: PartDecoder, jpeg: bytes, area: float) -> Callable[[], object]:
    """What decodes the middle of the file; begins where both can."""
    frame = decoder.read_frame(jpeg)
    side = area**0.5
    rows, columns = round(frame.height_px * side), round(frame.width_px * side)
    top, left = (frame.height_px - rows) // 2, (frame.width_px - columns) // 2
    left -= left % frame.mcu_width_px

    def call() -> object:
        decoder.read_frame(jpeg)
        return decoder.decode(jpeg, 1, top, left, rows, columns)

    return call


STUDY = Study(__doc__, "outputs/throughput/decoder.csv", repeats=9)
STUDY.add("--num-images", type=int, default=200)


def rows(given: Namespace) -> Iterator[Row]:
    """One of each case in every repeat, image by image; the first repeat warms."""
    keep_freed_memory()
    ours, turbo = find_decoder(), find_part_decoder()
    if ours is None or turbo is None:
        sys.exit("decoders are missing: `python -m pcr_exp doctor` says how to get them")
    decoders: list[tuple[str, PartDecoder]] = [("ours", ours), ("libjpeg-turbo", turbo)]
    calls: dict[tuple[str, float, str], list[Callable[[], object]]] = {}
    for sample in native_samples(given.num_images, given.images):
        try:
            files = files_of(sample.path.read_bytes())
            of_image = {
                (what, area, name): call_of(decoder, jpegs[number], area)
                for (what, jpegs), area in product(files.items(), AREAS)
                for number, (name, decoder) in enumerate(decoders)
            }
        except ImageError:  # CMYK, and what libjpeg cannot be kept from smoothing
            continue
        for case, call in of_image.items():
            calls.setdefault(case, []).append(call)
    num_measured = len(calls[ORIGINAL, 1.0, "ours"])
    for repeat in range(-1, given.repeats):
        spent_s = dict.fromkeys(calls, 0.0)
        for i, case in product(range(num_measured), calls):
            began_s = time.thread_time()
            calls[case][i]()
            spent_s[case] += time.thread_time() - began_s
        if repeat >= 0:
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


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    STUDY.run(rows, arguments)


if __name__ == "__main__":
    main()
