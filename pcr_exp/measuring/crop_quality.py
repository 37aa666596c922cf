"""What training sees of each scan group: the quality of random crops, in every decode mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.images.codec import Pixels
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.measuring.quality import chosen_images
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.randomness import Purpose, stream

CROP_COLUMNS = ["id", "group", "decode", "ms_ssim", "num_scales"]


def measure_crops(
    records: RecordSet,
    groups: Iterable[int],
    modes: Sequence[str],
    max_images: int,
    image_size: int,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> pd.DataFrame:
    """One row per image x scan group x value of `loader.decode`.

    MS-SSIM of a random-resized-crop of `image_size` pixels against the same crop of the image decoded from
    all groups; one crop per image, of images spread evenly over the split.

    Raises:
        RecordError: the records lack a group, or are damaged.
        ConfigError: there is no such mode.
    """
    groups = sorted(set(groups))
    for group in groups:
        records.index.check_group(group)
    transform = TrainTransform(image_size, AugmentConfig(horizontal_flip=False))
    total = min(max_images, records.index.num_samples)
    rows = []
    for number, (sample_id, jpeg) in enumerate(chosen_images(records, total)):
        draws = stream(seed, Purpose.AUGMENTATION, 0, 0, number).random(transform.num_draws).tolist()
        for group, mode, crop, reference in _crops(jpeg, sample_id, groups, modes, transform, draws, records):
            measured = ms_ssim(reference, crop)
            rows.append((sample_id, group, mode, measured.value, measured.num_scales))
        progress(number + 1, total)
    return pd.DataFrame(rows, columns=CROP_COLUMNS)


def summarise_crops(crops: pd.DataFrame) -> pd.DataFrame:
    """One row per group: n, and per mode the mean, and its mean difference to `libjpeg` with standard error.

    Differences are of the same crop, so their error is far smaller than the spread over images.
    """
    by_mode = crops.pivot_table(index=["id", "group"], columns="decode", values="ms_ssim")
    table = by_mode.groupby("group").size().rename("n").to_frame()
    for mode in by_mode.columns:
        table[f"{mode}_mean"] = by_mode[mode].groupby("group").mean()
        if mode != "libjpeg" and "libjpeg" in by_mode:
            difference = (by_mode[mode] - by_mode["libjpeg"]).groupby("group")
            table[f"{mode}_minus_libjpeg"] = difference.mean()
            table[f"{mode}_minus_libjpeg_sem"] = difference.sem()
    return table.reset_index()


def _crops(
    jpeg: bytes,
    name: str,
    groups: Sequence[int],
    modes: Sequence[str],
    transform: TrainTransform,
    draws: Sequence[float],
    records: RecordSet,
) -> Iterator[tuple[int, str, Pixels, Pixels]]:
    """(group, mode, crop, the crop of the whole file)."""
    num_groups = records.index.num_groups
    pieces = group_pieces(split_scans(jpeg), num_groups)

    def crop(jpeg: bytes, group: int, mode: str) -> Pixels:
        out: Pixels = np.empty((transform.image_size, transform.image_size, 3), dtype=np.uint8)
        transform(open_decoder(mode, "pcr", records.max_pixels)(jpeg, group, name), draws, out)
        return out

    reference = crop(jpeg, num_groups, "libjpeg")
    for group in groups:
        for mode in modes:
            yield group, mode, crop(join_pieces(pieces[:group]), group, mode), reference
