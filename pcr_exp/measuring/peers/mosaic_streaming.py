"""MosaicML Streaming: MDS shards in a local folder, read by torch workers.

What differs: samples are shuffled by its default algorithm, within blocks of shards; a small set is one
block, hence shuffled as a whole. Decoder and crop are those of `ImageFolder, PIL`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from pcr_exp.measuring.peers.image_folder import crop, torch_epochs, worker_settings
from pcr_exp.measuring.peers.registry import Images, Job, SourceImage


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """MDS shards of the size that it chooses itself, the JPEG bytes as they are."""
    with MDSWriter(out=str(folder), columns={"jpeg": "bytes", "label": "int"}) as shards:
        for image in images:
            shards.write({"jpeg": Path(image.path).read_bytes(), "label": image.label})


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """uint8 [B, 3, H, W]."""
    clean_stale_shared_memory()  # a run that was killed leaves names behind, which would be refused
    dataset = _Images(
        local=str(folder),
        batch_size=job.batch_size,
        shuffle=True,
        shuffle_seed=job.seed,
        num_canonical_nodes=1,
    )
    dataset.transform = crop(job.image_size, from_pil=True)
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=job.batch_size, **worker_settings(job))
    return torch_epochs(loader, job.num_epochs)


class _Images(StreamingDataset):
    transform: Callable[[Image.Image], torch.Tensor]

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(at)
        with Image.open(io.BytesIO(sample["jpeg"])) as image:
            return self.transform(image.convert("RGB")), sample["label"]
