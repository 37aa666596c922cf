"""Small photographs as files, and a job that reads them."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.loaders.formats import Built, Workspace, open_workspace
from experiments.loaders.peers.catalogue import SourceImage
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.measuring.throughput.job import Job

NUM_IMAGES = 10


def write_images(folder: Path, num_images: int = NUM_IMAGES) -> list[SourceImage]:
    """Write JPEG files of noise, 40 x 32 pixels and larger, in two classes."""
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    for i in range(num_images):
        pixels = np.random.default_rng(i).integers(0, 255, (32 + i, 40 + i, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        path = folder / f"{i}.jpg"
        path.write_bytes(buffer.getvalue())
        images.append(SourceImage(str(path), i % 2))
    return images


def job(loader: str = "image_folder_pil", decode: str = "pil", num_workers: int = 0, **given: Any) -> Job:
    settings: dict[str, Any] = {
        "label": "class",
        "storage": StorageConfig(name="unlimited"),
        "settings": LoaderConfig(num_workers=num_workers),
        "image_size": 16,
        "batch_size": 4,
    }
    return Job(loader=loader, decode=decode, **(settings | given))


def write_list(images: list[SourceImage], path: Path) -> Path:
    path.write_text(json.dumps(images))
    return path


def folder_config(root: Path) -> FolderConfig:
    return FolderConfig(
        name="folder",
        root=str(root),
        label="class",
        images_per_record=4,
        targets={"top1": 0.5},
        tune_fraction=0.0,  # every picture is read
    )


def write_classes(root: Path) -> Path:
    for name in ("cat", "dog"):
        write_images(root / "train" / name, 6)
        write_images(root / "val" / name, 1)
    (root / "train" / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    return root


def opened(tmp_path: Path) -> tuple[Workspace, Built]:
    root = tmp_path / "pictures"
    if not root.exists():
        write_classes(root)
    return open_workspace(
        folder_config(root), tmp_path / "work", on_error="skip", num_workers=1, progress=lambda *_: None
    )
