"""NVIDIA DALI on the CPU, one file per image.

Differences: it uses threads, not processes. Only the crop is decoded. An epoch's order is the same in every
run, because the full shuffle takes no seed. Batches continue across the ends of epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nvidia.dali import fn, pipeline_def, types

from experiments.loaders.peers import image_folder
from experiments.loaders.peers.catalogue import SourceImage
from pcr_exp.measuring.throughput.job import AUGMENT, Images, Job


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Create class folders of links, as for ImageFolder."""
    image_folder.build(images, folder)


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Yield uint8 [B, H, W, 3]."""
    pipeline = _pipeline(
        str(folder),
        job.image_size,
        batch_size=job.batch_size,
        num_threads=max(1, job.settings.num_workers),
        device_id=None,
        prefetch_queue_depth=job.settings.prefetch_batches,
        seed=job.seed,
    )
    pipeline.build()
    left = pipeline.epoch_size("files") * job.num_epochs
    while left > 0:
        images, _labels = pipeline.run()
        batch = images.as_array()[:left]
        left -= len(batch)
        yield batch


@pipeline_def
def _pipeline(folder: str, image_size: int) -> Any:
    # The alternative, a buffered shuffle, draws some images twice in an epoch and others not at all.
    jpegs, labels = fn.readers.file(file_root=folder, shuffle_after_epoch=True, name="files")
    images = fn.decoders.image_random_crop(
        jpegs,
        output_type=types.RGB,
        random_area=AUGMENT.crop_scale,
        random_aspect_ratio=AUGMENT.crop_ratio,
        num_attempts=10,
    )
    images = fn.resize(images, size=[image_size, image_size])
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels
