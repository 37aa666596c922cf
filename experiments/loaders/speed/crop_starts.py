"""What decoding gains if it begins at a crop's first row, and the size of a table of such places.

`python -m experiments.loaders.speed.crop_starts` prints a table, kept as outputs/throughput/crop_starts.csv:
CPU milliseconds to decode random-resized-crops of native ImageNet images, in one process, everything warm.
`today` reads every scan from its beginning. The others read a file that begins less than so many MCU rows
above the crop, which jpegtran cut without loss: as a decoder would that knew where these rows begin in every
scan. Pixels are the same. Looking into the table costs nothing here, so the gain is an upper bound.

`bytes_share` is the table over the image's bytes up to the group: for every scan 3 bytes for its place, for
every component of a scan of means 2 for its predictor, for every scan of other coefficients 1 for blocks to
come without symbols (EOBRUN).
"""

from __future__ import annotations

import subprocess
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from experiments.loaders.speed.study import Row, Study, native_samples
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
"""MCU rows from one place to the next."""
CROPS_PER_IMAGE = 4
_MARGIN_PX = 4
"""What parts are decoded with around them (pcr_exp.images.decoded)."""
_SOF_CODES = (0xC0, 0xC1, 0xC2)


class Case(NamedTuple):
    """One crop at one group, by the way of decoding: what does it, and the table's share of the bytes."""

    calls: dict[str, Callable[[], Any]]
    bytes_share: dict[str, float]


def mcu_height_px(jpeg: bytes) -> int:
    """8 or 16: the frame's first component has the largest sampling factors."""
    frame = next(segment for segment in segments(jpeg) if segment.code in _SOF_CODES)
    return 8 * (jpeg[frame.payload + 7] & 15) if jpeg[frame.payload + 5] > 1 else 8


def table_bytes(group: int, num_components: int, num_places: int) -> int:
    """See the module."""
    scans = DEFAULT.scans_of(num_components)[:group]
    predictors = sum(2 * len(scan.components) for scan in scans if scan.first == 0 and scan.high == 0)
    runs = sum(scan.first > 0 for scan in scans)
    of_place = 3 * len(scans) + predictors + runs
    return of_place * num_places


def below(original: bytes, frame: Frame, top: int) -> bytes:
    """The image without its first `top` rows, a multiple of an MCU's, in progressive scans."""
    size = f"{frame.width_px}x{frame.height_px - top}"
    command = ["jpegtran", "-copy", "none", "-crop", f"{size}+0+{top}"]
    return to_progressive(subprocess.run(command, input=original, capture_output=True, check=True).stdout)


def first_scans(jpeg: bytes, group: int) -> bytes:
    """The file of a scan group."""
    return join_pieces(split_scans(jpeg)[:group])


def cases_of(original: bytes, decoder: JpegDecoder, crops: list[Crop]) -> Iterator[tuple[int, Case]]:
    """(group, case) of each crop. Raises ImageError where the decoder is not for the file."""
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
            calls: dict[str, Callable[[], Any]] = {
                "today": partial(decoder.decode, whole, 1, top, left, rows, columns)
            }
            share = {"today": 0.0}
            wanted = calls["today"]()
            for every in ROWS:
                begin = max(0, top - 1) // (step * every) * step * every
                if begin not in starts:
                    starts[begin] = below(original, frame, begin)
                file, name = first_scans(starts[begin], group), f"table, every {every} rows"
                calls[name] = partial(decoder.decode, file, 1, top - begin, left, rows, columns)
                num_bytes = table_bytes(group, len(layout.blocks), -(-num_mcu_rows // every) - 1)
                share[name] = num_bytes / len(whole)
                if not np.array_equal(calls[name](), wanted):
                    raise AssertionError(f"rows from {begin} on have other pixels")
            yield group, Case(calls, share)


def rows(given: Namespace) -> Iterator[Row]:
    """Every way of every crop in every repeat, crop by crop; the first repeat warms."""
    decoder = find_decoder()
    if decoder is None:
        raise SystemExit("the decoder is missing: `python -m pcr_exp doctor` says how to get it")
    rng = np.random.default_rng(0)
    cases: list[tuple[int, Case]] = []
    for sample in native_samples(given.num_images, given.images):
        original = sample.path.read_bytes()
        draws = rng.random((CROPS_PER_IMAGE, TrainTransform.num_draws)).tolist()
        try:
            frame = decoder.read_frame(original)
            crops = [random_crop(frame.height_px, frame.width_px, AugmentConfig(), drawn) for drawn in draws]
            cases += cases_of(original, decoder, crops)
        except ImageError:  # CMYK
            continue
    for repeat in range(-1, given.repeats):
        spent_s = {(group, name): 0.0 for group, case in cases for name in case.calls}
        for group, case in cases:
            for name, call in case.calls.items():
                began_s = time.thread_time()
                call()
                spent_s[group, name] += time.thread_time() - began_s
        if repeat < 0:
            continue
        for (group, name), seconds in spent_s.items():
            of_group = [case for other, case in cases if other == group]
            yield {
                "group": group,
                "decoding": name,
                "repeat": repeat,
                "ms": 1e3 * seconds / len(of_group),
                "of_today": seconds / spent_s[group, "today"],
                "bytes_share": float(np.mean([case.bytes_share[name] for case in of_group])),
            }


STUDY = Study(__doc__, "outputs/throughput/crop_starts.csv", repeats=7)
STUDY.add("--num-images", type=int, default=60)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    STUDY.run(rows, arguments)


if __name__ == "__main__":
    main()
