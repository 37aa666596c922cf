"""Images as the network would see them, at every scan group, with bytes, MS-SSIM and the loader's crop."""

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
"""About so many of each class that is shown: not all classes are, where images are few."""
_CROP_QUALITY = 92
"""Quality of WebP: a crop of 224 px takes some 20 kB, and no eye sees a difference."""
_MOST_LOOKED_AT = 4096
"""Images of records that are chosen from: more would take a read of every record."""


@dataclass(frozen=True, slots=True)
class StoredImages:
    """Images by their ids, each of which can be read as the pieces of its scan groups."""

    codec: ImageCodec
    labels: Mapping[str, int]
    """Class index of one label, by id."""
    classes: Sequence[str]
    read: Callable[[str], list[bytes]]
    """Pieces of an image, one for each scan group. Raises ImageError or RecordError if it is damaged."""
    max_pixels: int
    unread: Mapping[str, str] = field(default_factory=dict)
    """Records that cannot be read, and why."""


def images_in_records(
    found: Sequence[Found], label: str, wanted: Collection[str] = (), at_least: int = _MOST_LOOKED_AT
) -> StoredImages:
    """Images of progressive records of one dataset: the first ones, and those whose ids are wanted.

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
    """Files as records would hold them: each is transcoded in memory when it is read."""
    files = {sample.id: sample for sample in samples}

    def read(name: str) -> list[bytes]:
        return codec.split(codec.encode(files[name].file.read_bytes(), max_pixels))

    labels = {name: sample.labels[label] for name, sample in files.items()}
    return StoredImages(codec, labels, classes, read, max_pixels)


def choose_by_class(
    images: StoredImages, num_images: int, named: Sequence[str] = (), per_class: int = IMAGES_PER_CLASS
) -> list[str]:
    """Ids of some images, in turn of each class: the classes that are named, or some that are spread evenly.

    Raises:
        RecordError: no image is of a class that is named.
    """
    members: dict[int, list[str]] = defaultdict(list)
    for name, label in images.labels.items():
        members[label].append(name)
    there = sorted(members)
    by_name = {images.classes[label]: label for label in there}
    if unknown := [name for name in named if name not in by_name]:
        raise RecordError(
            f"class {unknown[0]!r}: no image that was looked at is of it; wanted some of "
            f"{', '.join(by_name)}."
        )
    chosen = [by_name[name] for name in named]
    num_classes = -(-num_images // per_class)
    while not named and len(chosen) < len(there) and sum(len(members[one]) for one in chosen) < num_images:
        chosen = [there[i] for i in spread_evenly(len(there), min(len(there), num_classes))]
        num_classes += 1
    return in_turn(*(members[label] for label in chosen))[:num_images]


def in_turn(*lists: Sequence[str]) -> list[str]:
    """One of each list, then the next of each; none twice."""
    every = chain.from_iterable(zip_longest(*lists))
    return list(dict.fromkeys(name for name in every if name is not None))


class SeenImage(NamedTuple):
    """An image at every scan group; lists have an entry for each group."""

    id: str
    label: int
    width_px: int
    height_px: int
    pieces: list[bytes]
    """The bytes that each group adds to the file, whose end is EOI."""
    ms_ssim: list[float | None]
    """MS-SSIM of the whole image against all groups; None where the image is smaller than a window."""
    crops: list[bytes]
    """WebP files: what the network is given."""
    crop_ms_ssim: list[float | None]
    decode_s: list[float]
    """Seconds of one core to decode and crop."""

    @property
    def page_bytes(self) -> int:
        """About what it takes in a page, as text."""
        return sum(map(base64_bytes, map(len, (*self.pieces, *self.crops)))) + 1000


def base64_bytes(num_bytes: int) -> int:
    """Characters of so many bytes."""
    return -(-num_bytes // 3) * 4


@dataclass(frozen=True, slots=True)
class Explored:
    """Images that were looked at."""

    seen: list[SeenImage]
    left_out: dict[str, str]
    """Why others could not be shown, by their ids."""
    num_too_many: int
    """Images that were wanted too, and for which there was no room."""

    def decode_images_per_s(self) -> list[float]:
        """The rate of one core that decodes and crops, at each group."""
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
    """Look at images in this order, until a page of `max_bytes` is full.

    Damaged images are left out, and named.

    Args:
        images: Where they are.
        ids: Which.
        groups: Scan groups, rising; the last of them stands for all scans.
        crops: The network is given their centre crop.
        max_bytes: Of the images in a page.
        num_threads: Images at a time.
        progress: Told images that are done, and all.

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
        why = next(iter(left_out.values()), f"the first takes more than {max_bytes / 1e6:g} MB in a page")
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
