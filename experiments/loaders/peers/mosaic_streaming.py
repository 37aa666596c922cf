"""MosaicML Streaming: MDS shards in a local folder, read by torch workers.

What differs: samples are shuffled by its default algorithm, within blocks of shards; a small set is one
block, hence shuffled as a whole. Epochs are one long one, in which every image stands as often as there are
epochs. Crops are those of ImageFolder, of what TorchCodec decodes.
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
    """MDS shards of the size that it chooses itself, the JPEG bytes as they are."""
    with MDSWriter(out=str(folder), columns={"jpeg": "bytes", "label": "int"}) as shards:
        for image in images:
            shards.write({"jpeg": Path(image.path).read_bytes(), "label": image.label})


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """uint8 [B, 3, H, W]."""
    clean_stale_shared_memory()  # a run that was killed leaves names behind, which would be refused
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
