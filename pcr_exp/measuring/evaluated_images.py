"""Images of an evaluation at every level: from records, or from files without making records."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.datasets.seen import some
from pcr_exp.errors import DatasetError, ImageError
from pcr_exp.images.codec import ImageCodec, Pixels
from pcr_exp.images.decode import WHOLE
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.measuring.evaluation import Level, LevelBatch
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.fingerprint import sample_bytes
from pcr_exp.records.one_record import explain, load_sample
from pcr_exp.records.reader import RecordSet
from pcr_exp.system.words import counted

log = logging.getLogger(__name__)


def record_batches(
    records: Mapping[str, RecordSet],
    levels: Sequence[Level],
    loader: LoaderConfig,
    transform: EvalTransform,
    *,
    label: str,
    batch_size: int,
) -> Iterator[LevelBatch]:
    """Yield all images of the first level, then of the next; each is read and decoded once per level.

    Args:
        records: Record sets by encoding, with the same images in the same order.
        levels: Levels to read the images at.
        loader: Loader settings; each level sets its own `decode`.
        transform: Makes the networks' input.
        label: Name of the label.
        batch_size: Images in a batch.

    Raises:
        PcrExpError: a record cannot be read, or an image cannot be decoded.
    """
    for level in levels:
        first = 0
        reading = RecordLoader(
            records[level.encoding],
            StaticScan(level.group),
            replace(loader, decode=level.decode),
            transform=transform,
            label=label,
            batch_size=batch_size,
            seed=0,
            shuffle=False,
        )
        with closing(reading):
            for batch in reading.batches(0, 0, 1):
                yield LevelBatch(level, first, batch.images, batch.labels)
                first += len(batch.labels)


def file_batches(
    samples: Sequence[Sample],
    levels: Sequence[Level],
    codec: ImageCodec,
    transform: EvalTransform,
    *,
    label: str,
    batch_size: int,
    max_pixels: int,
    on_error: str,
    num_threads: int,
) -> Iterator[LevelBatch]:
    """Yield all levels of the first images, then of the next; each file is read and split into scans once.

    Networks see the same pixels as with records of these files, but no records are read or made.

    Args:
        samples: The images.
        levels: Levels at which records of them would be read.
        codec: Splits images into scan groups.
        transform: Makes the networks' input.
        label: Name of the label.
        batch_size: Images in a batch.
        max_pixels: As `records.max_pixels`.
        on_error: As `records.on_error`; "skip" leaves out images that records refuse, and logs their number.
        num_threads: Images processed at a time.

    Raises:
        ImageError: records would refuse an image, and `on_error` is "fail".
        DatasetError: no image is left.
        RecordError: an image cannot be decoded, or the program that splits images is missing or faulty.
    """
    modes = {level.decode for level in levels}
    decoders = {("pcr", mode): codec.open_decoder(mode, max_pixels) for mode in modes}
    decoders |= {("baseline", mode): WHOLE.open_decoder(mode, max_pixels) for mode in modes}

    def look(sample: Sample) -> Pixels | ImageError:
        """Return all levels of an image, uint8 [levels, px, px, 3], or why records would refuse it."""
        stored = load_sample(sample, sample_bytes(sample), max_pixels=max_pixels, reuse=None, codec=codec)
        if isinstance(stored, ImageError):
            return stored
        crops: Pixels = np.empty((len(levels), *[transform.image_size] * 2, 3), dtype=np.uint8)
        for level, out in zip(levels, crops, strict=True):
            parts = codec.join(stored.groups[: level.group])
            file = stored.original if level.encoding == "baseline" else b"".join(parts)
            decode = decoders[level.encoding, level.decode]
            transform(decode(file, level.group, f"{sample.id} (scan group {level.group})"), (), out)
        return crops

    first, rejected = 0, []
    with ThreadPoolExecutor(num_threads, "pcr-exp-evaluate") as pool:
        for start in range(0, len(samples), batch_size):
            seen = samples[start : start + batch_size]
            kept: list[tuple[Pixels, int]] = []
            for sample, crops in zip(seen, pool.map(look, seen), strict=True):
                if not isinstance(crops, ImageError):
                    kept.append((crops, sample.labels[label]))
                elif on_error == "fail":
                    raise explain(str(sample.path), str(crops))
                else:
                    rejected.append(sample.id)
            for place, level in enumerate(levels if kept else ()):
                images = torch.from_numpy(np.stack([crops[place] for crops, _ in kept]))
                yield LevelBatch(level, first, images, torch.tensor([number for _, number in kept]))
            first += len(kept)
    if not first:
        raise DatasetError(f"none of {len(samples)} images can be scored: {some(rejected)}.")
    if rejected:
        left = counted(len(rejected), "image", "are")
        log.warning("%s left out, because records cannot store them: %s", left, some(rejected))
