"""Images at every scan group, as the network would see them, with bytes, MS-SSIM and the loader's crop."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, pairwise, zip_longest
from typing import NamedTuple

import cv2
import numpy as np
import torch

from pcr_exp.config.crops import CropSettings
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import Decoder, ImageCodec, Pixels
from pcr_exp.images.decode import decode
from pcr_exp.images.jpeg import EOI, SOI, read_frame
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.loading.transform import EvalTransform, eval_transform
from pcr_exp.measuring.quality import spread_evenly
from pcr_exp.records.inspect import Found
from pcr_exp.records.single import SingleImages

IMAGES_PER_CLASS = 4
"""Approximate number of images per class shown. If images are few, not all classes are shown."""
_CROP_QUALITY = 92
"""WebP quality: a crop of 224 px takes about 20 kB, without a visible difference."""
_MAX_EXAMINED = 4096
"""Images in records to choose from; without a limit, every record would be read."""


@dataclass(frozen=True, slots=True)
class StoredImages:
    """Images by id, each readable as one piece per scan group."""

    codec: ImageCodec
    labels: Mapping[str, int]
    """Class index for one label, by image id."""
    classes: Sequence[str]
    read: Callable[[str], list[bytes]]
    """Returns an image's pieces, one per scan group. Raises ImageError or RecordError if it is damaged."""
    max_pixels: int
    unread: Mapping[str, str] = field(default_factory=dict)
    """Paths of records that cannot be read, with the reasons."""


def images_in_records(
    found: Sequence[Found], label: str, wanted: Collection[str] = (), at_least: int = _MAX_EXAMINED
) -> StoredImages:
    """Return images from one dataset's progressive records: the first ones, and the `wanted` ids.

    Raises:
        RecordError: the records have no images or no such label, or none can be read.
        StorageError: the storage could not deliver.
    """
    index = found[0].records.index
    if label not in index.classes:
        raise RecordError(
            f"label {label!r}: {index.dataset} has no such label; wanted one of {', '.join(index.classes)}."
        )
    places: dict[str, tuple[SingleImages, int, int]] = {}
    labels: dict[str, int] = {}
    unread: dict[str, str] = {}
    missing = set(wanted)
    for split in found:
        images = SingleImages(split.records)
        for record in split.numbers:
            if len(labels) >= at_least and not missing:
                break
            try:
                ids, values = images.header(record).ids, images.labels(record)[label]
            except RecordError as error:
                unread[split.records.path(record)] = str(error)
                continue
            missing.difference_update(ids)
            labels.update(zip(ids, values.tolist(), strict=True))
            places.update((name, (images, record, i)) for i, name in enumerate(ids))
    if not labels and unread:
        raise RecordError(f"no record can be read. The first: {next(iter(unread.values()))}")
    if not labels:
        raise RecordError(f"{index.dataset}/{index.split} holds no images, so there is nothing to show.")

    def read(name: str) -> list[bytes]:
        images, record, i = places[name]
        return [images.read_piece(record, i, group) for group in range(1, index.num_groups + 1)]

    records = found[0].records
    return StoredImages(records.codec, labels, index.classes[label], read, records.max_pixels, unread)


def images_in_files(
    samples: Iterable[Sample], label: str, classes: Sequence[str], codec: ImageCodec, max_pixels: int
) -> StoredImages:
    """Return images from files, as records would hold them: each is transcoded in memory when read."""
    files = {sample.id: sample for sample in samples}

    def read(name: str) -> list[bytes]:
        return codec.split(codec.encode(files[name].file.read_bytes(), max_pixels))

    labels = {name: sample.labels[label] for name, sample in files.items()}
    return StoredImages(codec, labels, classes, read, max_pixels)


def choose_by_class(
    images: StoredImages, num_images: int, named: Sequence[str] = (), per_class: int = IMAGES_PER_CLASS
) -> list[str]:
    """Return ids of images, alternating between the named classes, or between some spread evenly.

    Raises:
        RecordError: a named class has no image.
    """
    members: dict[int, list[str]] = defaultdict(list)
    for name, label in images.labels.items():
        members[label].append(name)
    there = sorted(members)
    by_name = {images.classes[label]: label for label in there}
    if unknown := [name for name in named if name not in by_name]:
        raise RecordError(
            f"class {unknown[0]!r}: none of the images that were read has it; wanted some of "
            f"{', '.join(by_name)}."
        )
    chosen = [by_name[name] for name in named]
    num_classes = -(-num_images // per_class)
    while not named and len(chosen) < len(there) and sum(len(members[one]) for one in chosen) < num_images:
        chosen = [there[i] for i in spread_evenly(len(there), min(len(there), num_classes))]
        num_classes += 1
    return in_turn(*(members[label] for label in chosen))[:num_images]


def in_turn(*lists: Sequence[str]) -> list[str]:
    """Interleave the lists: the first item of each, then the second of each, without duplicates."""
    every = chain.from_iterable(zip_longest(*lists))
    return list(dict.fromkeys(name for name in every if name is not None))


class SeenImage(NamedTuple):
    """An image at every scan group. Lists have one entry per group."""

    id: str
    label: int
    width_px: int
    height_px: int
    pieces: list[bytes]
    """Bytes that each group adds to the file, without the EOI marker at its end."""
    ms_ssim: list[float | None]
    """MS-SSIM of the whole image against all groups; None if the image is smaller than a window."""
    crops: list[bytes]
    """WebP files of the network's input."""
    crop_ms_ssim: list[float | None]
    decode_s: list[float]
    """Seconds that one core takes to decode and crop."""

    @property
    def page_bytes(self) -> int:
        """Approximate size in a page, as base64 text."""
        return sum(map(base64_bytes, map(len, (*self.pieces, *self.crops)))) + 1000


def base64_bytes(num_bytes: int) -> int:
    """Return the number of base64 characters for `num_bytes` bytes."""
    return -(-num_bytes // 3) * 4


@dataclass(frozen=True, slots=True)
class Explored:
    """Result of `explore_images`."""

    seen: list[SeenImage]
    left_out: dict[str, str]
    """Reasons why images could not be shown, by id."""
    num_too_many: int
    """Requested images for which there was no room."""

    def decode_images_per_s(self) -> list[float]:
        """Return the images/s that one core decodes and crops, at each group."""
        seconds = np.sum([image.decode_s for image in self.seen], axis=0)
        return [len(self.seen) / total for total in np.maximum(seconds, 1e-9).tolist()]


def explore_images(
    images: StoredImages,
    ids: Sequence[str],
    groups: Sequence[int],
    crops: CropSettings,
    *,
    max_bytes: int,
    num_threads: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Explored:
    """Decode and compare images in the given order, until a page of `max_bytes` is full.

    Damaged images are left out and reported.

    Args:
        images: Source of the images.
        ids: Ids of the images to show.
        groups: Scan groups in increasing order; the last stands for all scans.
        crops: Settings of the centre crop that is the network's input.
        max_bytes: Size limit of the images in a page.
        num_threads: Images processed at a time.
        progress: Called with the number of finished images and their total.

    Raises:
        RecordError: no image can be shown.
    """
    decoder = images.codec.open_decoder(crops.decode, images.max_pixels)
    transform = eval_transform(crops)

    def look(name: str) -> SeenImage | str:
        try:
            return _seen(images, name, groups, decoder, transform)
        except (ImageError, RecordError) as error:
            return str(error)

    seen: list[SeenImage] = []
    left_out: dict[str, str] = {}
    room = max_bytes
    num_done = 0
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for first in range(0, len(ids), num_threads):
            names = ids[first : first + num_threads]
            for name, found in zip(names, pool.map(look, names), strict=True):
                if isinstance(found, str):
                    left_out[name] = found
                elif room < found.page_bytes:
                    room = 0
                    break
                else:
                    room -= found.page_bytes
                    seen.append(found)
                num_done += 1
            progress(num_done, len(ids))
            if room == 0:
                break
    if not seen:
        why = next(
            iter(left_out.values()), f"the first one alone needs more than {max_bytes / 1e6:g} MB of a page"
        )
        raise RecordError(f"none of {len(ids)} images can be shown: {why}")
    return Explored(seen, left_out, len(ids) - num_done)


def _seen(
    images: StoredImages, name: str, groups: Sequence[int], decoder: Decoder, transform: EvalTransform
) -> SeenImage:
    pieces = images.read(name)
    files = [b"".join(images.codec.join(pieces[:group])) for group in groups]
    if not files[0].startswith(SOI) or not files[0].endswith(EOI):
        raise ImageError(f"{name}: a browser cannot show images of the codec {images.codec.name!r}.")
    frame = read_frame(files[-1])
    crops, seconds = [], []
    for group, file in zip(groups, files, strict=True):
        crop: Pixels = np.empty((transform.image_size, transform.image_size, 3), np.uint8)
        started_s = time.thread_time()
        transform(decoder(file, group, f"{name} (scan group {group})"), (), crop)
        seconds.append(time.thread_time() - started_s)
        crops.append(crop)
    whole = [decode(file, name, images.max_pixels) for file in files]
    return SeenImage(
        name,
        images.labels[name],
        frame.width_px,
        frame.height_px,
        [b"".join(pieces[first:end]) for first, end in pairwise((0, *groups))],
        _similarities(whole),
        [_as_webp(crop) for crop in crops],
        _similarities(crops),
        seconds,
    )


def _similarities(pixels: Sequence[Pixels]) -> list[float | None]:
    try:
        return [*(ms_ssim(pixels[-1], image).value for image in pixels[:-1]), 1.0]
    except ImageError:  # smaller than a window
        return [None] * len(pixels)


def _as_webp(pixels: Pixels) -> bytes:
    _, encoded = cv2.imencode(".webp", pixels[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, _CROP_QUALITY])
    return encoded.tobytes()
