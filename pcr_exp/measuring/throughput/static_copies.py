"""What one keeps without progressive records, to choose a size later: a copy of the images per size."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from PIL import Image

from pcr_exp.measuring.peers.catalog import OURS
from pcr_exp.measuring.peers.protocol import SourceImage
from pcr_exp.measuring.throughput.formats import Built, Workspace, build_once, original_files
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

LOWEST_QUALITY, HIGHEST_QUALITY = 1, 95
_SAMPLE_IMAGES = 32


def build_copies(workspace: Workspace, groups: Sequence[int], num_workers: int) -> list[Built]:
    """A copy of all images as large as each scan group, and a line for all of them together.

    The last line, `files_and_copies`, is what gives the choice that one set of progressive records gives: the
    original files and every copy.
    """
    index = RecordSet(LocalStorage(workspace.format_folder(OURS)), "pcr").index
    copies = []
    for group in groups:
        quality = quality_for(workspace.images, index.mean_prefix_bytes(group))
        copies.append(
            build_once(
                workspace,
                f"copy_q{quality}_group_{group}",
                partial(_build_copy, workspace.images, quality, num_workers),
            )
        )
    return [*copies, _together(original_files(workspace), copies)] if copies else []


def _together(files: Built, copies: Sequence[Built]) -> Built:
    seconds = [(copy.build_s or 0.0, copy.build_cpu_s or 0.0) for copy in copies]
    return replace(
        files,
        format="files_and_copies",
        num_files=files.num_files + sum(copy.num_files for copy in copies),
        num_bytes=files.num_bytes + sum(copy.num_bytes for copy in copies),
        build_s=sum(wall_s for wall_s, _ in seconds),
        build_cpu_s=sum(cpu_s for _, cpu_s in seconds),
    )


def quality_for(images: Sequence[SourceImage], mean_bytes: float) -> int:
    """The JPEG quality (1..95) whose copies come nearest to `mean_bytes` from below; else 1.

    Looked for on 32 images, spread evenly.
    """
    step = max(1, len(images) // _SAMPLE_IMAGES)
    sample = [Path(image.path).read_bytes() for image in images[::step]][:_SAMPLE_IMAGES]
    low, high = LOWEST_QUALITY, HIGHEST_QUALITY
    while low < high:
        middle = (low + high + 1) // 2
        size = sum(len(reencode(jpeg, middle)) for jpeg in sample) / len(sample)
        low, high = (middle, high) if size <= mean_bytes else (low, middle - 1)
    return low


def _build_copy(images: Sequence[SourceImage], quality: int, num_workers: int, folder: Path) -> None:
    """Write every image again at a quality, by Pillow with its other settings as they come."""

    def write(numbered: tuple[int, SourceImage]) -> None:
        number, image = numbered
        (folder / f"{number:07d}.jpg").write_bytes(reencode(Path(image.path).read_bytes(), quality))

    with ThreadPoolExecutor(max(1, num_workers)) as pool:
        list(pool.map(write, enumerate(images)))


def reencode(jpeg: bytes, quality: int) -> bytes:
    """The image as a baseline JPEG of a quality; its metadata is left out."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(jpeg)) as image:
        image.save(out, "JPEG", quality=quality)
    return out.getvalue()
