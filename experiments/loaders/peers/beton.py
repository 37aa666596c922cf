"""FFCV: one memory-mapped file, decoded in threads by compiled code.

Differences: it uses threads, not processes. It decodes whole images, by libjpeg's fast and less exact inverse
DCT, and resizes crops by area. Its own writer would re-encode images to fewer bytes (`ffcv_reencoded`); here
its file holds the original JPEG bytes, as for all others. Its code is compiled once per process, before
batches are counted.
"""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.rgb_image import IMAGE_MODES, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor
from ffcv.writer import MIN_PAGE_SIZE, DatasetWriter
from PIL import Image

from experiments.loaders.peers.catalogue import SourceImage
from pcr_exp.measuring.throughput.job import AUGMENT, Images, Job

FILE = "images.beton"
_SMALLEST_PAGE = 4 * MIN_PAGE_SIZE
_CMYK_QUALITY = 95


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Write one file, with pages that hold the largest image."""
    write(images, folder, _JpegField(), lambda image: Path(image.path).read_bytes())


def write(
    images: Sequence[SourceImage], folder: Path, field: RGBImageField, read: Callable[[SourceImage], Any]
) -> None:
    """Write one file with, for each image, the result of `read` as `field` stores it, and the label."""
    largest = max(Path(image.path).stat().st_size for image in images)
    page_size = max(_SMALLEST_PAGE, 1 << (largest - 1).bit_length())
    fields = {"image": field, "label": IntField()}
    writer = DatasetWriter(str(folder / FILE), fields, page_size=page_size, num_workers=1)
    writer.from_indexed_dataset(_Samples(images, read))
    for process in multiprocessing.active_children():
        process.join()  # FFCV leaves it running; its CPU seconds are only known once it has ended


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Yield uint8 [B, H, W, 3], valid until the next few are requested, because FFCV reuses memory."""
    workers = max(1, job.settings.num_workers)
    loader = _loader(folder / FILE, job.image_size, job.batch_size, workers, job.settings.prefetch_batches)
    order = loader.traversal_order = _Epochs(loader.reader.num_samples, job.num_epochs, job.seed)
    loader.first_traversal_order = order.sample_order(0)  # its length sets the loader's
    for images, _labels in loader:
        yield images


@lru_cache(maxsize=1)
def _loader(file: Path, image_size: int, batch_size: int, num_workers: int, batches_ahead: int) -> Loader:
    """Return a loader, cached because compiling takes seconds; every measurement sets its own order."""
    crop = RandomResizedCropRGBImageDecoder(
        (image_size, image_size), tuple(AUGMENT.crop_scale), tuple(AUGMENT.crop_ratio)
    )
    return Loader(
        str(file),
        batch_size=batch_size,
        num_workers=num_workers,
        os_cache=True,
        order=OrderOption.RANDOM,
        seed=0,
        drop_last=False,
        batches_ahead=batches_ahead,
        pipelines={"image": [crop, RandomHorizontalFlip(), ToTensor()]},
        custom_fields={"image": RGBImageField},
    )


class _Epochs:
    """Traversal order for FFCV: one continuous sequence of epochs, each shuffled anew."""

    def __init__(self, num_images: int, num_epochs: int, seed: int) -> None:
        self._num_images, self._num_epochs, self._seed = num_images, num_epochs, seed

    def sample_order(self, epoch: int) -> Any:
        """Return uint64 [epochs x images], which FFCV treats as one epoch."""
        rng = np.random.default_rng((self._seed, epoch))
        return np.concatenate(
            [rng.permutation(np.arange(self._num_images, dtype=np.uint64)) for _ in range(self._num_epochs)]
        )


class _Samples(Sequence[tuple[Any, int]]):
    """The result of `read` and the label for each image."""

    def __init__(self, images: Sequence[SourceImage], read: Callable[[SourceImage], Any]) -> None:
        self._images, self._read = images, read

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, at: Any) -> Any:
        image = self._images[at]
        return self._read(image), image.label


class _JpegField(RGBImageField):
    """Image field that stores the given JPEG bytes unchanged, except CMYK."""

    def encode(self, destination: Any, jpeg: bytes, malloc: Callable[[int], tuple[int, Any]]) -> None:
        with Image.open(io.BytesIO(jpeg)) as image:
            width, height = image.size
            if image.mode not in ("RGB", "L"):  # CMYK, which FFCV's decoder would not decode
                encoded = io.BytesIO()
                image.convert("RGB").save(encoded, "JPEG", quality=_CMYK_QUALITY)
                jpeg = encoded.getvalue()
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["width"], destination["height"] = width, height
        destination["data_ptr"], stored = malloc(len(jpeg))
        stored[:] = np.frombuffer(jpeg, dtype=np.uint8)
