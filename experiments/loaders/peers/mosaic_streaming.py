"""MosaicML Streaming: MDS shards in a local folder, read by torch workers.

Differences: its default algorithm shuffles samples within blocks of shards; a small set is one block, and
hence shuffled as a whole. All epochs form one long epoch that contains every image once per epoch. TorchCodec
decodes, and crops are those of ImageFolder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from streaming import MDSWriter, Stream, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from experiments.loaders.peers.catalogue import SourceImage
from experiments.loaders.peers.image_folder import crop, open_decoder, torch_images, worker_settings
from pcr_exp.measuring.throughput.job import Images, Job


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Write MDS shards of the default size, with unchanged JPEG bytes."""
    with MDSWriter(out=str(folder), columns={"jpeg": "bytes", "label": "int"}) as shards:
        for image in images:
            shards.write({"jpeg": Path(image.path).read_bytes(), "label": image.label})


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Return an iterator over uint8 [B, 3, H, W]."""
    clean_stale_shared_memory()  # a killed run leaves names behind, which would be refused
    dataset = _Images(
        streams=[Stream(local=str(folder), repeat=float(job.num_epochs))],
        batch_size=job.batch_size,
        shuffle=True,
        shuffle_seed=job.seed,
        num_canonical_nodes=1,
    )
    dataset.decode = open_decoder(job.decode)
    dataset.transform = crop(job.image_size, from_pil=job.decode == "pil")
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=job.batch_size, **worker_settings(job))
    return torch_images(loader)


class _Images(StreamingDataset):
    decode: Callable[[bytes], Any]
    transform: Callable[[Any], torch.Tensor]

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(at)
        return self.transform(self.decode(sample["jpeg"])), sample["label"]
