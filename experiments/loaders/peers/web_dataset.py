"""WebDataset: tar shards that torch workers read sequentially.

Differences: the shuffle is approximate. Each worker takes every n-th shard, shuffles these shards, and then
shuffles samples in its own buffer. Batches continue across the ends of epochs. TorchCodec decodes, the
fastest decoder that a torch worker can call, and crops are those of ImageFolder.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import DataLoader

from experiments.loaders.peers.catalogue import SourceImage
from experiments.loaders.peers.image_folder import crop, open_decoder, torch_images, worker_settings
from pcr_exp.measuring.throughput.job import Images, Job

SHARD_IMAGES = 64
"""Small enough for several shards per worker on a sample of a dataset; a worker without one would idle."""
SHUFFLE_IMAGES = 512
"""Compressed samples in each worker's shuffle buffer: eight shards."""


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Write shards of 64 images, with unchanged JPEG bytes."""
    with webdataset.ShardWriter(f"{folder}/%06d.tar", maxcount=SHARD_IMAGES, verbose=0) as shards:
        for number, image in enumerate(images):
            jpeg = Path(image.path).read_bytes()
            shards.write({"__key__": f"{number:07d}", "jpg": jpeg, "cls": image.label})


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Return an iterator over uint8 [B, 3, H, W]. Workers collate whole batches, as its authors advise."""
    shards = sorted(map(str, folder.glob("*.tar")))
    samples = (
        # Each epoch has its own order: detshuffle counts epochs, and a generator does not restart as a seed
        # would. empty_check: with fewer shards than workers, a worker without shards is not an error here.
        webdataset.WebDataset(
            shards, shardshuffle=len(shards), detshuffle=True, seed=job.seed, empty_check=False
        )
        .shuffle(SHUFFLE_IMAGES, rng=random.Random(job.seed))
        .to_tuple("jpg", "cls")
        .map_tuple(open_decoder(job.decode), int)
        .map_tuple(crop(job.image_size, from_pil=job.decode == "pil"), int)
        .repeat(job.num_epochs)
    )
    # Repeat before batching, so that only the last batch may be short.
    dataset = webdataset.DataPipeline(samples, webdataset.batched(job.batch_size))
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=None, **worker_settings(job))
    return torch_images(loader)
