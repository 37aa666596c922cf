"""Gain from starting to decode at a crop's first row, and the size of a table of such start positions.

`python -m experiments.loaders.speed.crop_starts` prints a table, saved as outputs/throughput/crop_starts.csv:
CPU milliseconds to decode random-resized-crops of native ImageNet images, in one process, everything warm.
`today` reads every scan from its beginning. `table, every N rows` reads a file that jpegtran cut losslessly
at most N MCU rows above the decoded rows. A decoder could do the same if it knew where these rows begin in
every scan. Pixels are identical. A table look-up costs nothing here, so the gain is an upper bound.

`bytes_share` is the table's size over the image's bytes up to the group. An entry has 3 bytes for the
position in every scan, 2 for the predictor of every component of a first DC scan, and 1 in every AC scan for
the blocks to come without symbols (EOBRUN).
"""

from __future__ import annotations

import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.results.study import Row, Study, by_turns, native_samples
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.errors import ImageError
from pcr_exp.images.decoder import JpegDecoder, find_decoder
from pcr_exp.images.jpeg import join_pieces, segments, split_scans
from pcr_exp.images.libturbojpeg import Frame
from pcr_exp.images.transcode import to_progressive
from pcr_exp.loading.transform import Crop, TrainTransform, random_crop

GROUPS = (10, 5)
ROWS = (1, 2, 3, 4)
"""MCU rows between entries of the table."""
CROPS_PER_IMAGE = 4
TODAY = "today"
_MARGIN_PX = 4
"""Margin decoded around a crop, as in pcr_exp.images.decoded."""
_SOF_CODES = (0xC0, 0xC1, 0xC2)


Decoded = tuple[int, str, Callable[[], Any], float]
"""A crop's group, the name of a way to decode it, a call that does so, and the table's share of the bytes."""


def mcu_height_px(jpeg: bytes) -> int:
    """Return 8 or 16; the frame's first component is taken to have the largest sampling factors."""
    frame = next(segment for segment in segments(jpeg) if segment.code in _SOF_CODES)
    return 8 * (jpeg[frame.payload + 7] & 15) if jpeg[frame.payload + 5] > 1 else 8


def table_bytes(group: int, num_components: int, num_places: int) -> int:
    """Return the size of the table that the module docstring describes."""
    scans = DEFAULT.scans_of(num_components)[:group]
    predictors = sum(2 * len(scan.components) for scan in scans if scan.first == 0 and scan.high == 0)
    runs = sum(scan.first > 0 for scan in scans)
    of_place = 3 * len(scans) + predictors + runs
    return of_place * num_places


def below(original: bytes, frame: Frame, top: int) -> bytes:
    """Return the image, in progressive scans, without its first `top` rows, a multiple of the MCU height."""
    size = f"{frame.width_px}x{frame.height_px - top}"
    command = ["jpegtran", "-copy", "none", "-crop", f"{size}+0+{top}"]
    return to_progressive(subprocess.run(command, input=original, capture_output=True, check=True).stdout)


def first_scans(jpeg: bytes, group: int) -> bytes:
    """Return the file of a scan group: its first `group` scans."""
    return join_pieces(split_scans(jpeg)[:group])


def cases_of(original: bytes, decoder: JpegDecoder, crops: list[Crop]) -> Iterator[Decoded]:
    """Yield each crop at each group in each way. Raises ImageError if the decoder cannot handle the file."""
    step = mcu_height_px(original)
    layout = decoder.read_layout(original)
    frame, starts = layout.frame, {0: to_progressive(original)}
    num_mcu_rows = -(-frame.height_px // step)
    for crop in crops:
        top, left = max(0, crop.top - _MARGIN_PX), max(0, crop.left - _MARGIN_PX)
        rows = min(frame.height_px, crop.top + crop.rows + _MARGIN_PX) - top
        columns = min(frame.width_px, crop.left + crop.columns + _MARGIN_PX) - left
        for group in GROUPS:
            whole = first_scans(starts[0], group)
            today = partial(decoder.decode, whole, 1, top, left, rows, columns)
            yield group, TODAY, today, 0.0
            wanted = today()
            for every in ROWS:
                begin = max(0, top - 1) // (step * every) * step * every
                if begin not in starts:
                    starts[begin] = below(original, frame, begin)
                file = first_scans(starts[begin], group)
                call = partial(decoder.decode, file, 1, top - begin, left, rows, columns)
                if not np.array_equal(call(), wanted):
                    raise AssertionError(f"rows from {begin} on have other pixels")
                num_bytes = table_bytes(group, len(layout.blocks), -(-num_mcu_rows // every) - 1)
                yield group, f"table, every {every} rows", call, num_bytes / len(whole)


def rows(given: Namespace) -> Iterator[Row]:
    """Measure the ways in turn, crop by crop."""
    decoder = find_decoder()
    if decoder is None:
        raise SystemExit("the decoder is missing: `python -m pcr_exp doctor` says how to get it")
    rng = np.random.default_rng(0)
    calls: dict[tuple[int, str], list[Callable[[], Any]]] = {}
    shares: dict[tuple[int, str], list[float]] = {}
    for sample in native_samples(given.num_images, given.images):
        original = sample.path.read_bytes()
        draws = rng.random((CROPS_PER_IMAGE, TrainTransform.num_draws)).tolist()
        try:
            frame = decoder.read_frame(original)
            crops = [random_crop(frame.height_px, frame.width_px, AugmentConfig(), drawn) for drawn in draws]
            of_image = list(cases_of(original, decoder, crops))
        except ImageError:  # CMYK
            continue
        for group, name, call, share in of_image:
            calls.setdefault((group, name), []).append(call)
            shares.setdefault((group, name), []).append(share)
    num_crops = len(calls[GROUPS[0], TODAY])
    cases = {case: lambda item, each=each: each[item]() for case, each in calls.items()}
    for repeat, spent_s in enumerate(by_turns(cases, num_crops, given.repeats)):
        for (group, name), seconds in spent_s.items():
            yield {
                "group": group,
                "decoding": name,
                "repeat": repeat,
                "ms": 1e3 * seconds / num_crops,
                "of_today": seconds / spent_s[group, TODAY],
                "bytes_share": float(np.mean(shares[group, name])),
            }


main = Study(__doc__, "outputs/throughput/crop_starts.csv", rows, repeats=7)
main.add("--num-images", type=int, default=60)

if __name__ == "__main__":
    main()
