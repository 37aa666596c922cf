"""LitData: chunks of samples in a local folder, read by its own DataLoader.

Differences: chunks are shuffled, and samples within windows of 256 in a chunk. All epochs form one long epoch
that contains every chunk once per epoch. TorchCodec decodes, and crops are those of ImageFolder.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from litdata import StreamingDataLoader, StreamingDataset, optimize

from experiments.loaders.peers.catalogue import SourceImage
from experiments.loaders.peers.image_folder import crop, open_decoder, torch_images, worker_settings
from pcr_exp.measuring.throughput.job import Images, Job

CHUNK_IMAGES = 64
"""Small enough for several chunks per worker on a sample of a dataset."""


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Write chunks of 64 images, with unchanged JPEG bytes."""
    optimize(_sample, inputs=list(images), output_dir=str(folder), num_workers=1, chunk_size=CHUNK_IMAGES)


def _sample(image: SourceImage) -> dict[str, Any]:
    return {"jpeg": Path(image.path).read_bytes(), "label": image.label}


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Yield uint8 [B, 3, H, W]."""
    dataset = _Images(str(folder), shuffle=True, seed=job.seed, subsample=float(job.num_epochs))
    dataset.decode = open_decoder(job.decode)
    dataset.crop = crop(job.image_size, from_pil=job.decode == "pil")
    try:
        yield from torch_images(
            StreamingDataLoader(dataset, batch_size=job.batch_size, **worker_settings(job))
        )
    finally:
        del dataset
        gc.collect()  # the loader is in a reference cycle, and its workers end with it


class _Images(StreamingDataset):
    decode: Callable[[bytes], Any]
    crop: Callable[[Any], torch.Tensor]

    def __getitem__(self, at: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(at)
        return self.crop(self.decode(bytes(sample["jpeg"]))), sample["label"]
