"""WebDataset: tar shards that torch workers read from front to back.

What differs: the shuffle is approximate. Each worker takes every n-th shard, shuffles those, and then samples
in a buffer of its own; batches run on over the ends of epochs. Crops are those of ImageFolder, of what
TorchCodec decodes, the fastest of the decoders that a torch worker can call.
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
"""Few enough for several shards per worker on a sample of a dataset: a worker without a shard would idle."""
SHUFFLE_IMAGES = 512
"""Samples that are shuffled together, per worker: compressed, as many as eight shards."""


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Shards of 64 images, the JPEG bytes as they are."""
    with webdataset.ShardWriter(f"{folder}/%06d.tar", maxcount=SHARD_IMAGES, verbose=0) as shards:
        for number, image in enumerate(images):
            jpeg = Path(image.path).read_bytes()
            shards.write({"__key__": f"{number:07d}", "jpg": jpeg, "cls": image.label})


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """uint8 [B, 3, H, W]. Workers collate: one hand-over per batch, as its authors advise."""
    shards = sorted(map(str, folder.glob("*.tar")))
    samples = (
        # Each epoch has its own order: detshuffle counts epochs; a generator goes on where a seed would not.
        # empty_check: fewer shards than workers leave one without any, which is no error here.
        webdataset.WebDataset(
            shards, shardshuffle=len(shards), detshuffle=True, seed=job.seed, empty_check=False
        )
        .shuffle(SHUFFLE_IMAGES, rng=random.Random(job.seed))
        .to_tuple("jpg", "cls")
        .map_tuple(open_decoder(job.decode), int)
        .map_tuple(crop(job.image_size, from_pil=job.decode == "pil"), int)
        .repeat(job.num_epochs)
    )
    # Batches are made of what is repeated, and not repeated themselves: none is short but the last.
    dataset = webdataset.DataPipeline(samples, webdataset.batched(job.batch_size))
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=None, **worker_settings(job))
    return torch_images(loader)
