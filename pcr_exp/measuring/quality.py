"""MS-SSIM and bytes of whole images, and MS-SSIM of training crops, at every scan group."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pandas as pd
import torch

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.errors import RecordError
from pcr_exp.images.codec import Pixels
from pcr_exp.images.decode import decode, open_decoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.ms_ssim import fits_window, ms_ssim, report_too_small, ssim
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.randomness import Purpose, stream

QUALITY_COLUMNS = ["id", "group", "bytes", "ms_ssim", "num_scales", "ssim", "width_px", "height_px"]


def measure_quality(
    records: RecordSet,
    groups: Iterable[int],
    max_images: int,
    num_workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> pd.DataFrame:
    """Return one row per image and scan group, for images spread evenly over the split, in its order.

    `bytes` is the size of the image's pieces on storage up to the group. It excludes the two-byte end marker
    added by joining them, and the image's share of the record's header. `ms_ssim` and `ssim` compare the
    whole image with its decode from all groups; crops have other values. Records with a chosen image are read
    once, in full. `num_workers` threads decode and compare images; `progress(done, total)` counts them.

    Raises:
        RecordError: the records are not progressive, are empty, lack a group, or are damaged.
        ImageError: all chosen images are too small to be measured. If only some are, they have no rows.
    """
    groups = sorted(set(groups))
    if records.index.encoding != "pcr":
        raise RecordError(f"{_name(records)} has one fidelity only: quality is measured on encoding 'pcr'.")
    for group in groups:
        records.index.check_group(group)
    total = min(max_images, records.index.num_samples)
    if total == 0:
        raise RecordError(f"{_name(records)} holds no images, so there is nothing to measure.")
    num_groups, max_pixels = records.index.num_groups, records.max_pixels

    def work(image: tuple[str, bytes]) -> list[dict] | None:
        return _measure_image(*image, groups, num_groups, max_pixels)

    rows: list[dict] = []
    done = num_small = 0
    images = chosen_images(records, total)
    pool = ThreadPoolExecutor(num_workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        while some := list(itertools.islice(images, 4 * num_workers)):  # `map` reads all that it is given
            for found in pool.map(work, some):
                rows += found or []
                num_small += found is None
                done += 1
                progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)
    report_too_small(_name(records), num_small, total)
    return pd.DataFrame(rows, columns=QUALITY_COLUMNS)


def spread_evenly(num_samples: int, num_chosen: int) -> np.ndarray:
    """Return strictly increasing positions, int64 [num_chosen]: the middles of equal parts of the split."""
    return (2 * np.arange(num_chosen) + 1) * num_samples // (2 * num_chosen)


def summarise_quality(quality: pd.DataFrame) -> pd.DataFrame:
    """Return one row per group: n, then mean, std, p5 and p95 of bytes, MS-SSIM and SSIM."""
    by_group = quality.groupby("group")
    columns: dict[str, pd.Series] = {"n": by_group.size()}
    for measure in ("bytes", "ms_ssim", "ssim"):
        values = by_group[measure]
        columns[f"{measure}_mean"] = values.mean()
        columns[f"{measure}_std"] = values.std()
        columns[f"{measure}_p5"] = values.quantile(0.05)
        columns[f"{measure}_p95"] = values.quantile(0.95)
    columns["min_num_scales"] = by_group["num_scales"].min()
    return pd.DataFrame(columns).reset_index()


def _name(records: RecordSet) -> str:
    index = records.index
    return f"the record set {index.dataset}/{index.split} (encoding {index.encoding!r})"


def chosen_images(records: RecordSet, num_images: int) -> Iterator[tuple[str, bytes]]:
    """Yield (id, JPEG of all groups) for the chosen images, with one record in memory at a time."""
    index = records.index
    first = np.cumsum([0] + [entry.num_samples for entry in index.records])
    chosen = spread_evenly(index.num_samples, num_images)
    for record in range(len(index.records)):
        inside = chosen[(chosen >= first[record]) & (chosen < first[record + 1])] - first[record]
        if len(inside):
            prefix = records.read_prefix(record, index.num_groups)
            for i in inside:
                yield prefix.ids[i], prefix.encoded(int(i))


def _measure_image(
    sample_id: str, jpeg: bytes, groups: list[int], num_groups: int, max_pixels: int
) -> list[dict] | None:
    """Return a row per group; None if the image is too small to be measured."""
    pieces = group_pieces(split_scans(jpeg), num_groups)
    reference = decode(jpeg, sample_id, max_pixels)
    if not fits_window(reference):
        return None
    rows = []
    for group in groups:
        prefix = join_pieces(pieces[:group])
        image = reference if group == num_groups else decode(prefix, sample_id, max_pixels)
        multi_scale = ms_ssim(reference, image)
        rows.append(
            {
                "id": sample_id,
                "group": group,
                "bytes": sum(len(piece) for piece in pieces[:group]),
                "ms_ssim": multi_scale.value,
                "num_scales": multi_scale.num_scales,
                "ssim": ssim(reference, image),
                "width_px": reference.shape[1],
                "height_px": reference.shape[0],
            }
        )
    return rows


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
    """Return one row per image, scan group and value of `loader.decode`.

    Each row has the MS-SSIM of a random-resized-crop of `image_size` pixels against the same crop of the
    image decoded from all groups. Images are spread evenly over the split, with one crop each.

    Raises:
        RecordError: the records lack a group, or are damaged.
        ConfigError: a mode does not exist.
    """
    groups = sorted(set(groups))
    for group in groups:
        records.index.check_group(group)
    decoders = {mode: open_decoder(mode, "pcr", records.max_pixels) for mode in {*modes, "libjpeg"}}
    transform = TrainTransform(image_size, AugmentConfig(horizontal_flip=False))

    def crop(file: bytes, name: str, group: int, mode: str, draws: Sequence[float]) -> Pixels:
        out: Pixels = np.empty((image_size, image_size, 3), dtype=np.uint8)
        transform(decoders[mode](file, group, name), draws, out)
        return out

    total, num_groups = min(max_images, records.index.num_samples), records.index.num_groups
    rows = []
    for number, (sample_id, jpeg) in enumerate(chosen_images(records, total)):
        draws = stream(seed, Purpose.AUGMENTATION, 0, 0, number).random(transform.num_draws).tolist()
        pieces = group_pieces(split_scans(jpeg), num_groups)
        reference = crop(jpeg, sample_id, num_groups, "libjpeg", draws)
        for group, mode in product(groups, modes):
            seen = crop(join_pieces(pieces[:group]), sample_id, group, mode, draws)
            measured = ms_ssim(reference, seen)
            rows.append((sample_id, group, mode, measured.value, measured.num_scales))
        progress(number + 1, total)
    return pd.DataFrame(rows, columns=CROP_COLUMNS)


def summarise_crops(crops: pd.DataFrame) -> pd.DataFrame:
    """Return one row per group: n, and each mode's mean and mean difference from `libjpeg`.

    Differences come with their standard error. It is far smaller than the spread over images, because both
    modes show the same crop.
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
