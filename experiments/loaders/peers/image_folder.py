"""torchvision's ImageFolder and torch's DataLoader: what most people use, one file per image.

Under a throttle, each image is one request to our storage layer. Without one, files are opened as torchvision
does.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Sampler
from torchvision.datasets import ImageFolder  # type: ignore[import-untyped]
from torchvision.datasets.folder import pil_loader  # type: ignore[import-untyped]
from torchvision.transforms import v2  # type: ignore[import-untyped]

from experiments.loaders.peers.catalogue import SourceImage
from pcr_exp.measuring.throughput.job import AUGMENT, Images, Job
from pcr_exp.storage.open import is_limited, open_storage
from pcr_exp.storage.protocol import Storage


def worker_settings(job: Job) -> dict[str, Any]:
    """Return a peer's DataLoader settings: as many workers as ours. Its single pass covers all epochs."""
    workers = job.settings.num_workers
    return {
        "num_workers": workers,
        "prefetch_factor": job.settings.prefetch_batches if workers else None,
    }


def torch_images(loader: DataLoader[Any]) -> Iterator[Images]:
    """Yield the images of all (images, labels) batches; the loader's workers end with the generator.

    The caller must not keep a reference to the loader.
    """
    try:
        for images, _labels in loader:
            yield images
    finally:
        # Workers' CPU seconds are known once they end, which is when the last reference to the loader goes.
        del loader


class EpochsSampler(Sampler[int]):
    """Yields every sample once per epoch, in a new order each time, in one continuous stream."""

    def __init__(self, dataset: Sized, num_epochs: int, seed: int) -> None:
        self._size, self._num_epochs, self._seed = len(dataset), num_epochs, seed

    def __len__(self) -> int:
        return self._num_epochs * self._size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed)
        for _ in range(self._num_epochs):
            yield from torch.randperm(self._size, generator=generator).tolist()


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Create class folders of links; the images themselves stay where they are."""
    for label in {image.label for image in images}:
        (folder / f"{label:05d}").mkdir()
    for number, image in enumerate(images):
        (folder / f"{image.label:05d}" / f"{number:07d}.jpg").symlink_to(Path(image.path).absolute())


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Return an iterator over uint8 [B, 3, H, W]."""
    from_pil = job.decode == "pil"
    dataset = ImageFolder(
        str(folder), transform=crop(job.image_size, from_pil=from_pil), loader=_loader(folder, job)
    )
    sampler = EpochsSampler(dataset, job.num_epochs, job.seed)
    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=job.batch_size, sampler=sampler, **worker_settings(job)
    )
    return torch_images(loader)


def crop(image_size: int, *, from_pil: bool) -> Callable[[Any], torch.Tensor]:
    """Return a random-resized-crop and flip of a PIL image or a tensor, to uint8 [3, H, W]."""
    steps: list[Callable[..., Any]] = [
        v2.RandomResizedCrop(image_size, tuple(AUGMENT.crop_scale), tuple(AUGMENT.crop_ratio)),
        v2.RandomHorizontalFlip(),
    ]
    return v2.Compose([*steps, v2.PILToTensor()] if from_pil else steps)


def _loader(folder: Path, job: Job) -> Callable[[str], Any]:
    """Return the function that ImageFolder opens a path with."""
    decode = open_decoder(job.decode)
    if not is_limited(job.storage):
        return pil_loader if job.decode == "pil" else decode
    return partial(_read_through, open_storage(str(folder), job.storage), folder, decode)


def _read_through(
    storage: Storage, folder: Path, decode: Callable[[bytes], Any], path: str
) -> Image.Image | torch.Tensor:
    """Read a whole file in one request and decode it. Its size comes from the file system, at no charge."""
    file = Path(path)
    return decode(storage.read(str(file.relative_to(folder)), 0, file.stat().st_size))


def open_decoder(name: str) -> Callable[[Any], Any]:
    """Return a function that decodes a path or bytes (`pil`: only bytes) to RGB. It pickles by name.

    Raises:
        ImportError: torchvision no longer has decoders, or there is no TorchCodec that decodes images.
    """
    if name == "pil":
        return _decode_pil
    if name == "torchcodec":
        from torchcodec.decoders import decode_image as torchcodec_image

        return torchcodec_image
    from torchvision.io import decode_image  # type: ignore[import-untyped]  # noqa: F401

    return _decode_torchvision


def _decode_pil(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


def _decode_torchvision(source: str | bytes) -> torch.Tensor:
    from torchvision.io import ImageReadMode, decode_image

    if isinstance(source, bytes):
        return decode_image(torch.frombuffer(bytearray(source), dtype=torch.uint8), ImageReadMode.RGB)
    return decode_image(source, ImageReadMode.RGB)
